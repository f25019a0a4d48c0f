// SPDX-License-Identifier: Apache-2.0
// A group on one server, by hand: who is heard and let in, and what is said of it; a schedule of
// the simulation would meet these cases too seldom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>

#include "bindings/trainer/fit/own_time.h"
#include "bindings/trainer/server/coordinator/coordinator_state.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/server/shard_kit.h"

namespace ronde::trainer::server {
namespace {

// What the first server answers in the end, once it and its standby have said to each other what
// they have to.
Messages answers_of_pair(ServerState& first, ServerState& standby, const Message& message) {
  Messages answers;
  std::deque<Message> on_their_way{message};
  for (; !on_their_way.empty(); on_their_way.pop_front()) {
    const Message one = on_their_way.front();
    if (one.to.role != Role::kServer) {
      answers.push_back(one);
      continue;
    }
    ServerState& to = one.to.index == 0 ? first : standby;
    for (Message& next : to.on_message(0.0, one)) on_their_way.push_back(std::move(next));
  }
  return answers;
}

// It lacks what was confirmed, and nobody can be told to take over: the first one goes on alone.
TEST(ServerShard, AStandbyThatWasStartedAgainHoldsNobody) {
  ServerOptions options{.servers = 2, .standby = true, .job = "job", .start = 7};
  ServerState first(options);
  options.index = 1;
  auto standby = std::make_unique<ServerState>(options);
  const Address worker{Role::kWorker, 0, 5};
  const auto ask = [&](const Message& message) {
    return answers_of_pair(first, *standby, message);
  };
  (void)ask(message_from(worker, Kind::kHello));
  (void)ask(create_message(worker, "async"));
  ASSERT_THAT(ask(message_from(worker, Kind::kPush, 2)), has_kind(Kind::kAck));
  options.start = 3;
  standby = std::make_unique<ServerState>(options);
  EXPECT_THAT(ask(message_from(worker, Kind::kPush, 3)), has_kind(Kind::kAck));
  EXPECT_EQ(first.shard(0)->variables()->version(), 2U);
  EXPECT_THAT(first.take_news(),
              testing::Contains("ps 1 was started again, and has lost its copy of ps 0, which goes "
                                "on without a standby: to have one, end all tasks and start them "
                                "again from a checkpoint"));
}

// It has heard nobody meanwhile, and what it hears first must not be the others' death.
TEST(ServerShard, AChiefThatStoodStillTakesNobodyForDead) {
  WorkerState chief(
      {.self = {Role::kChief, 0, 5}, .servers = 2, .standby = true, .decides = true, .job = "job"});
  const auto beat = [&](double now, std::uint32_t server) {
    Message message = message_from({Role::kServer, server, 7}, Kind::kBeatBack);
    message.version = 3;
    (void)chief.on_message(now, message);
  };
  double clock = 7.0;
  OwnTime time([&] { return clock; });
  (void)chief.on_tick(time.listened());
  for (const std::uint32_t server : {0U, 1U}) beat(time.listened(), server);
  clock += 8.0;
  beat(time.listened(), 1);
  (void)chief.on_tick(time.listened());
  EXPECT_EQ(chief.dead(), 0U);
  for (int tenth = 0; tenth < 40; ++tenth) {
    clock += 0.1;
    beat(time.listened(), 1);
    (void)chief.on_tick(time.listened());
  }
  EXPECT_EQ(chief.dead(), 1U);
}

// A server that has not said hello may belong to another job, or be an earlier start that still
// runs: its entries are not taken.
TEST(ServerShard, NoServerIsBelievedWithoutAHello) {
  ServerOptions options{.servers = 2, .standby = true, .job = "--ps_hosts a", .start = 7};
  ServerState server(options);
  const auto entry_of = [](std::uint64_t start) {
    Message entry = message_from({Role::kServer, 1, start}, Kind::kHello);
    entry.group = 1;
    entry.entry = 1;
    entry.origin = {Role::kWorker, 0, 5};
    return entry;
  };
  const auto hello_of = [](std::uint64_t start, const std::string& job) {
    Message hello = message_from({Role::kServer, 1, start}, Kind::kHello, start);
    hello.group = 1;
    hello.text = job;
    return hello;
  };
  Message view = message_from({Role::kServer, 1, 9}, Kind::kBeat);
  view.view = 1;
  view.dead = 1;
  EXPECT_THAT(server.on_message(0.0, entry_of(9)), has_kind(Kind::kUnknown));
  EXPECT_THAT(server.on_message(0.0, hello_of(9, "--ps_hosts b")), has_kind(Kind::kRefused));
  EXPECT_THAT(server.on_message(0.0, entry_of(9)), has_kind(Kind::kUnknown));
  (void)server.on_message(0.0, view);
  EXPECT_EQ(server.shard(1)->entries(), 0U);
  EXPECT_FALSE(server.deposed());
  EXPECT_THAT(server.on_message(0.0, hello_of(9, options.job)), has_kind(Kind::kWelcome));
  EXPECT_THAT(server.on_message(0.0, entry_of(9)), has_kind(Kind::kReplicated));
  EXPECT_THAT(server.on_message(0.0, hello_of(11, options.job)), has_kind(Kind::kWelcome));
  EXPECT_THAT(server.on_message(0.0, hello_of(9, options.job)), testing::IsEmpty());
  EXPECT_THAT(server.on_message(0.0, entry_of(9)), has_kind(Kind::kUnknown));
  // Nor does one confirm what it has not been given.
  const Address worker{Role::kWorker, 0, 5};
  Message confirmed = message_from({Role::kServer, 1, 13}, Kind::kReplicated);
  Message hello = message_from(worker, Kind::kHello);
  hello.text = options.job;
  (void)server.on_message(0.0, hello);
  confirmed.entry = 1;
  EXPECT_THAT(server.on_message(0.0, confirmed), testing::IsEmpty());
}

// A server whose standby has taken over, and which does not know that yet, answers nobody: what it
// counted would be lost.
TEST(ServerShard, AStandbyThatHasTakenOverConfirmsNothing) {
  ServerOptions options{.servers = 2, .standby = true, .job = "job"};
  ServerState first(options);
  options.index = 1;
  ServerState standby(options);
  const Address worker{Role::kWorker, 0, 5};
  const auto ask = [&](const Message& message) { return answers_of_pair(first, standby, message); };
  (void)ask(message_from(worker, Kind::kHello));
  (void)ask(create_message(worker, "async"));
  ASSERT_THAT(ask(message_from(worker, Kind::kPush, 2)), has_kind(Kind::kAck));
  Message view = message_from(worker, Kind::kBeat);
  view.view = 1;
  view.dead = 1;
  (void)standby.on_message(0.0, view);
  ASSERT_TRUE(standby.shard(0)->primary());
  EXPECT_THAT(ask(message_from(worker, Kind::kPush, 3)), testing::Not(has_kind(Kind::kAck)));
  EXPECT_EQ(standby.shard(0)->variables()->version(), 1U);
}

// Answers of a server to a hello with these settings, of a job that has the first line.
std::string refusal_of(ServerState& server, const Address& from, const std::string& text,
                       double now = 0.0) {
  Message hello = message_from(from, Kind::kHello);
  hello.text = text;
  const Messages out = server.on_message(now, hello);
  return out.empty() ? "silence" : out.front().text;
}

TEST(ServerShard, AServerOfAnotherJobOrTrainingIsAStranger) {
  ServerState server({.workers = 3, .job = "--ps_hosts a\nRONDE_JOB x"});
  const std::string job = "--ps_hosts a\nRONDE_JOB x";
  EXPECT_THAT(
      refusal_of(server, {Role::kWorker, 0, 5}, "--ps_hosts a\nRONDE_JOB y"),
      testing::StartsWith("worker 0 was started with RONDE_JOB y, and ps 0 with RONDE_JOB x"));
  EXPECT_NE(refusal_of(server, {Role::kWorker, 0, 5}, "--ps_hosts a"), "");
  const Address chief{Role::kWorker, 0, 5};
  // This one comes before the chief, and what it is, is known only then.
  EXPECT_EQ(refusal_of(server, {Role::kWorker, 1, 6}, job + "\n--mode sync\nrate 1"), "");
  EXPECT_EQ(refusal_of(server, chief, job + "\n--mode async\nrate 1"), "");
  (void)server.on_message(0.0, create_message(chief, "async"));
  for (const Kind kind : {Kind::kPull, Kind::kPush}) {
    const Messages out = server.on_message(0.1, message_from({Role::kWorker, 1, 6}, kind, 2));
    ASSERT_THAT(out, has_kind(Kind::kRefused));
    EXPECT_THAT(out.front().text,
                testing::StartsWith("worker 1 has --mode sync, and the variables of ps 0 are "
                                    "those of a training with --mode async: start all"));
  }
  EXPECT_THAT(refusal_of(server, {Role::kWorker, 2, 7}, job + "\nrate 2"),
              testing::StartsWith("worker 2 has rate 2, and the variables"));
  // One that does not say a rate may have it from the chief.
  EXPECT_EQ(refusal_of(server, {Role::kWorker, 2, 8}, job + "\n--mode async"), "");
  // A chief of the next training that comes to what is left of this one.
  EXPECT_THAT(refusal_of(server, {Role::kWorker, 0, 9}, job + "\n--mode sync", 60.0),
              testing::StartsWith("worker 0 has --mode sync"));
}

TEST(ServerShard, AJobHasOneChief) {
  ServerState alone({.workers = 1, .job = "job"});
  EXPECT_THAT(refusal_of(alone, {Role::kChief, 0, 5}, "job"),
              testing::StartsWith("the chief is no task of the job that ps 0 serves"));
  ServerState server({.workers = 1, .has_chief = true, .job = "job"});
  const Address worker{Role::kWorker, 0, 5};
  (void)server.on_message(0.0, message_from(worker, Kind::kHello));
  EXPECT_THAT(server.on_message(0.0, create_message(worker, "async")), has_kind(Kind::kRefused));
  EXPECT_FALSE(server.shard(0)->created());
}

// The second start has the smaller number, as on a host whose clock is behind.
TEST(ServerShard, WhichStartIsTheLaterOneIsKnownByItsArrival) {
  ServerState server({.workers = 1, .job = "job"});
  const Address first{Role::kWorker, 0, 9};
  const Address second{Role::kWorker, 0, 5};
  EXPECT_THAT(server.on_message(0.0, message_from(first, Kind::kHello)), has_kind(Kind::kWelcome));
  EXPECT_THAT(server.on_message(4.0, message_from(second, Kind::kHello)), has_kind(Kind::kWelcome));
  EXPECT_EQ(refusal_of(server, first, "job", 20.0),
            "worker 0 runs twice: ps 0 knows one that was started later, so end this one");
  EXPECT_THAT(server.on_message(20.0, message_from(second, Kind::kStatus, 1)),
              has_kind(Kind::kCounts));
  CoordinatorState state(1);
  (void)state.schedule("step");
  EXPECT_THAT(state.on_message(0.0, message_from(first, Kind::kBeatBack)), testing::SizeIs(1));
  EXPECT_THAT(state.on_message(1.0, message_from(second, Kind::kBeatBack)), testing::SizeIs(1));
  EXPECT_THAT(state.on_message(2.0, message_from(first, Kind::kBeatBack)), testing::IsEmpty());
}

TEST(ServerShard, NobodyIsHeardWithoutAHello) {
  ServerState server(
      {.servers = 2, .workers = 2, .standby = true, .has_chief = true, .job = "job"});
  const Address chief{Role::kChief, 0, 5};
  (void)server.on_message(0.0, message_from(chief, Kind::kHello));
  (void)server.on_message(0.0, create_message(chief, "async"));
  ASSERT_TRUE(server.shard(0)->created());
  for (const Role role : {Role::kWorker, Role::kChief, Role::kEvaluator}) {
    for (const std::uint64_t incarnation : {0U, 7U}) {
      const Address stranger{role, role == Role::kWorker ? 1U : 0U, incarnation};
      for (auto kind = Kind::kCreate; kind <= Kind::kClose;
           kind = static_cast<Kind>(static_cast<int>(kind) + 1)) {
        for (const Message& one : server.on_message(0.1, message_from(stranger, kind, 2))) {
          EXPECT_EQ(one.kind, Kind::kUnknown)
              << text_of(stranger) << ", " << static_cast<int>(kind);
          EXPECT_EQ(one.entry, 0U);
        }
      }
      Message beat = message_from(stranger, Kind::kBeat);
      beat.view = 1;
      beat.dead = 1;
      (void)server.on_message(0.1, beat);
    }
  }
  EXPECT_FALSE(server.closed());
  EXPECT_FALSE(server.deposed());
  const Address none{Role::kEvaluator, 0, 0};
  EXPECT_THAT(server.on_message(0.1, message_from(none, Kind::kHello)), testing::IsEmpty());
}

Message error_of_chief(const Address& chief) {
  Message message = message_from(chief, Kind::kClose, 9);
  message.text = "the disk is full";
  message.version = 78;
  return message;
}

TEST(ServerShard, AnErrorOfTheChiefIsToldToThoseThatAreThereAndToThoseThatComeLater) {
  ServerState server({.workers = 3, .job = "job"});
  const Address chief{Role::kWorker, 0, 5};
  const Address other{Role::kWorker, 1, 6};
  const Address late{Role::kWorker, 2, 7};
  for (const Address& one : {chief, other}) {
    (void)server.on_message(0.0, message_from(one, Kind::kHello));
  }
  const auto told = [](const Messages& out, const Address& to) {
    WorkerState worker({.self = to, .job = "job"});
    for (const Message& one : out) {
      if (one.to == to) (void)worker.on_message(0.0, one);
    }
    try {
      (void)worker.closed();
    } catch (const TrainerError& error) {
      return std::to_string(error.exit_code()) + ": " + error.what();
    }
    return std::string("nothing");
  };
  const Messages out = server.on_message(0.1, error_of_chief(chief));
  EXPECT_THAT(out, has_kind(Kind::kAck));
  EXPECT_EQ(told(out, other),
            "78: worker 1 ends: the chief has ended with an error: the disk is full");
  ASSERT_TRUE(server.closed());
  EXPECT_THROW(server.require_no_error(), TrainerError);
  EXPECT_FALSE(server.all_told());
  EXPECT_EQ(told(server.on_message(0.2, message_from(late, Kind::kHello)), late),
            "78: worker 2 ends: the chief has ended with an error: the disk is full");
  EXPECT_TRUE(server.all_told());
}

// A chief of other settings, as one that has failed before it had a model, ends no training.
TEST(ServerShard, AnErrorOfAChiefThatIsAStrangerEndsNobody) {
  ServerState server({.workers = 1, .job = "job"});
  const Address chief{Role::kWorker, 0, 5};
  const Address again{Role::kWorker, 0, 6};
  EXPECT_EQ(refusal_of(server, chief, "job\nvariables 4"), "");
  (void)server.on_message(0.0, create_message(chief, "async"));
  EXPECT_THAT(refusal_of(server, again, "job\nvariables 0", 60.0),
              testing::StartsWith("worker 0 has variables 0"));
  EXPECT_THAT(server.on_message(60.0, error_of_chief(again)), has_kind(Kind::kUnknown));
  EXPECT_FALSE(server.closed());
}

TEST(ServerShard, WhoLeftAndWhoCameIsSaid) {
  ServerState server({.workers = 2, .job = "job"});
  const Address chief{Role::kWorker, 0, 5};
  const Address other{Role::kWorker, 1, 6};
  const auto counts = [&](double now) {
    for (const Message& one : server.on_message(now, message_from(other, Kind::kStatus, 7))) {
      if (one.kind == Kind::kCounts) return one.text;
    }
    return std::string("no answer");
  };
  for (const Address& one : {chief, other}) {
    (void)server.on_message(0.0, message_from(one, Kind::kHello));
  }
  EXPECT_THAT(server.take_news(),
              testing::ElementsAre("worker 0, the chief, is there", "worker 1 is there"));
  (void)server.on_message(4.0, message_from(other, Kind::kBeat));
  (void)server.on_tick(6.0);
  EXPECT_THAT(server.take_news(),
              testing::ElementsAre("worker 0, the chief, has not been heard for 5 s: the others "
                                   "go on without it, and nothing is saved"));
  EXPECT_THAT(counts(6.0),
              testing::AllOf(testing::HasSubstr(R"("chief_is_heard":false)"),
                             testing::HasSubstr(R"("lost":["worker 0, the chief,"])")));
  const Address again{Role::kWorker, 0, 4};
  (void)server.on_message(7.0, message_from(again, Kind::kHello));
  EXPECT_THAT(server.take_news(), testing::ElementsAre("worker 0, the chief, is there again"));
  (void)server.on_message(7.0, message_from(other, Kind::kBye, 8));
  EXPECT_FALSE(server.all_told());
  (void)server.on_message(7.0, message_from(again, Kind::kClose, 1));
  ASSERT_TRUE(server.closed());
  EXPECT_FALSE(server.all_told());
  EXPECT_THAT(counts(7.1), testing::HasSubstr(R"("closed":true)"));
  EXPECT_TRUE(server.all_told());
}

}  // namespace
}  // namespace ronde::trainer::server
