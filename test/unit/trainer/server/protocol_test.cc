// SPDX-License-Identifier: Apache-2.0
// The servers' promises, in seeded schedules of the simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/server/coordinator/coordinator_state.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/server/simulation.h"

namespace ronde::trainer::server {
namespace {

// What must hold of any run.
void check(const Plan& plan, std::uint64_t seed, std::map<std::string, std::uint64_t>* sums = {}) {
  SCOPED_TRACE(testing::Message() << text_of(plan.mode) << ", seed " << seed);
  Simulation run(plan, seed);
  run.run();
  ASSERT_EQ(run.trouble, "");
  // Each worker has at most a push, a pull and their entries and answers under way, twice when one
  // was killed.
  EXPECT_LE(run.most_kept, 16U * (kWorkers + 1));
  for (std::uint32_t group = 0; group < plan.servers; ++group) {
    const Shard* const shard = run.home(group);
    ASSERT_NE(shard, nullptr);
    ASSERT_TRUE(shard->created());
    auto& variables = const_cast<Variables&>(*shard->variables());
    const std::vector<float> values = variables.values({}).whole();
    std::uint64_t marked = 0;
    double sum = 0.0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = values[i];
      sum += value;
      marked += value != 0.0F ? 1U : 0U;
      if (plan.mode.mode != Mode::kSync) {
        ASSERT_TRUE(value == 0.0F || value == 1.0F) << "counted more than once: " << value;
      }
      if (run.acknowledged[group].contains(i)) {
        ASSERT_NE(value, 0.0F) << "acknowledged and lost: " << run.state();
      }
      if (run.dropped[group].contains(i)) {
        ASSERT_EQ(value, 0.0F) << "dropped and counted";
      }
    }
    std::uint64_t counted = 0;
    for (const std::uint64_t one : shard->steps()) counted += one;
    EXPECT_EQ(counted, marked);  // global_step is the sum of the workers' steps
    EXPECT_NEAR(sum, static_cast<double>(variables.version()), 1e-3);  // each update moves by 1
    if (plan.mode.mode != Mode::kSync) {
      EXPECT_EQ(variables.version(), marked);
    } else {
      EXPECT_EQ(shard->staleness()[0], marked);  // no push of an earlier round counts
    }
    if (sums != nullptr) {
      (*sums)["pushes"] += marked;
      (*sums)["dropped"] += run.dropped[group].size();
    }
  }
}

std::uint64_t schedules(std::uint64_t few) {
  const char* const all = std::getenv("RONDE_SCHEDULES");
  return all == nullptr ? few : std::strtoull(all, nullptr, 10);
}

Plan plan_of(const std::string& mode) {
  Plan plan;
  plan.mode = mode_of(mode);
  plan.loss = 0.05;
  plan.twice = 0.05;
  return plan;
}

TEST(ServerProtocol, AsyncCountsEachPushOnce) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("async");
    plan.kills = 2;
    check(plan, seed);
  }
}

TEST(ServerProtocol, BoundedStalenessHolds) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("stale=" + std::to_string(1 + seed % 3));
    plan.kills = static_cast<int>(seed % 3);
    check(plan, seed);
  }
}

TEST(ServerProtocol, SyncRoundsAverage) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.kills = static_cast<int>(seed % 3);
    plan.mode.backup_workers = seed % 4 == 3 ? 1 : 0;
    check(plan, seed);
  }
}

// A pause is longer than the time-out of a worker, whose push may then be late once in each group.
TEST(ServerProtocol, AWorkerThatWasLateOnceTakesPartAgain) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.loss = plan.twice = 0.0;
    plan.pauses = 1 + static_cast<int>(seed % 2);
    plan.servers = 1 + static_cast<std::uint32_t>(seed % 3);
    std::map<std::string, std::uint64_t> sums;
    check(plan, seed, &sums);
    EXPECT_LE(sums["dropped"], static_cast<std::uint64_t>(plan.pauses) * plan.servers) << seed;
  }
}

TEST(ServerProtocol, BackupWorkersAndPausesOverManyServersEnd) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.mode.backup_workers = static_cast<std::uint32_t>(seed % 3);
    plan.pauses = static_cast<int>(seed % 4);
    plan.kills = static_cast<int>(seed % 2);
    plan.servers = 3 + static_cast<std::uint32_t>(seed % 2);
    check(plan, seed);
  }
}

TEST(ServerProtocol, AServerThatDiesIsTakenOver) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.kills_server = true;
    plan.kills = static_cast<int>(seed % 2);
    plan.servers = seed % 2 == 0 ? 2 : 3;
    check(plan, seed);
  }
}

// As on one host that goes down. The next server has all, whoever of the two is there first.
TEST(ServerProtocol, AServerThatDiesWithTheChiefIsTakenOver) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.kills_server = plan.kills_chief = true;
    plan.servers = seed % 2 == 0 ? 2 : 3;
    check(plan, seed);
  }
}

// Started again so soon that nobody has missed it: the standby has what it had.
TEST(ServerProtocol, AServerThatComesBackEmptyIsTakenOver) {
  Plan plan;
  plan.mode = mode_of("async");
  Simulation run(plan, 1);
  const auto created = [&run] {
    return std::ranges::all_of(run.acknowledged, [](const auto& one) { return !one.empty(); });
  };
  bool is_restarted = false;
  while (run.trouble.empty() && run.now < 200.0 && !run.done()) {
    const Simulation::Event event = run.events.top();
    run.events.pop();
    run.now = event.time;
    if (!is_restarted && created()) {
      is_restarted = true;
      ServerOptions options = run.servers[0]->options();
      options.start = 0x11;  // no later number than that of the first one
      run.servers[0] = std::make_unique<ServerState>(options);
    }
    if (event.message) {
      run.deliver(*event.message);
    } else {
      for (const auto& server : run.servers) run.post(server->on_tick(run.now));
      for (auto& task : run.tasks) run.post(task.state->on_tick(run.now));
      run.post_tick();
    }
    for (auto& task : run.tasks) {
      Messages out;
      task.self.role == Role::kChief ? run.drive_chief(task, out) : run.drive(task, out);
      run.post(std::move(out));
    }
  }
  EXPECT_EQ(run.trouble, "");
  ASSERT_TRUE(is_restarted && run.done()) << run.state();
  EXPECT_TRUE(run.servers[0]->deposed());
  const Shard* const shard = run.home(0);
  ASSERT_TRUE(shard != nullptr && shard->created());
  std::uint64_t counted = 0;
  for (const std::uint64_t one : shard->steps()) counted += one;
  EXPECT_EQ(counted, kWorkers * kSteps);
}

// Messages by hand, where a schedule would meet a case too seldom.
Message message_from(const Address& from, Kind kind, std::uint64_t sequence = 0) {
  Message message;
  message.kind = kind;
  message.from = from;
  message.sequence = sequence;
  message.weight = 1.0;
  message.rate = 1.0;
  if (kind == Kind::kHello) message.text = "job";
  if (kind == Kind::kPush) message.floats = Floats::of({1.0F});
  if (kind == Kind::kCreate) message.floats = Floats::of({0.0F});
  return message;
}

Message create_message(const Address& chief, const std::string& mode) {
  VariableSpecs specs;
  specs.variables = {{"v", {1}}};
  specs.mode = mode_of(mode);
  Message message = message_from(chief, Kind::kCreate, 1);
  message.text = specs.text();
  return message;
}

auto has_kind(Kind kind) { return testing::Contains(testing::Field(&Message::kind, kind)); }

// It lacks what was confirmed, and nobody can be told to take over: the first one goes on alone.
TEST(ServerProtocol, AStandbyThatWasStartedAgainHoldsNobody) {
  ServerOptions options{.servers = 2, .standby = true, .job = "job", .start = 7};
  ServerState first(options);
  options.index = 1;
  auto standby = std::make_unique<ServerState>(options);
  const Address worker{Role::kWorker, 0, 5};
  const auto ask = [&](const Message& message) {
    Messages answers;
    for (const Message& entry : first.on_message(0.0, message)) {
      for (const Message& confirmed : standby->on_message(0.0, entry)) {
        for (Message& one : first.on_message(0.0, confirmed)) answers.push_back(std::move(one));
      }
    }
    return answers;
  };
  (void)ask(message_from(worker, Kind::kHello));
  (void)ask(create_message(worker, "async"));
  ASSERT_THAT(ask(message_from(worker, Kind::kPush, 2)), has_kind(Kind::kAck));
  options.start = 3;
  standby = std::make_unique<ServerState>(options);
  EXPECT_THAT(ask(message_from(worker, Kind::kPush, 3)), has_kind(Kind::kAck));
  EXPECT_EQ(first.shard(0)->variables()->version(), 2U);
}

// A server whose standby has taken over, and which does not know that yet, answers nobody: what it
// counted would be lost.
TEST(ServerProtocol, AStandbyThatHasTakenOverConfirmsNothing) {
  ServerOptions options{.servers = 2, .standby = true, .job = "job"};
  ServerState first(options);
  options.index = 1;
  ServerState standby(options);
  const Address worker{Role::kWorker, 0, 5};
  const auto ask = [&](const Message& message) {
    Messages answers;
    for (const Message& entry : first.on_message(0.0, message)) {
      for (const Message& confirmed : standby.on_message(0.0, entry)) {
        for (Message& one : first.on_message(0.0, confirmed)) answers.push_back(std::move(one));
      }
    }
    return answers;
  };
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

TEST(ServerProtocol, AServerOfAnotherJobOrTrainingIsAStranger) {
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

TEST(ServerProtocol, AJobHasOneChief) {
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
TEST(ServerProtocol, WhichStartIsTheLaterOneIsKnownByItsArrival) {
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

TEST(ServerProtocol, NobodyIsHeardWithoutAHello) {
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

// A server and workers of a sync job by hand; the number of a push's element is its worker's.
struct Rounds {
  explicit Rounds(std::uint32_t workers, std::uint32_t backup_workers = 0)
      : server({.workers = workers, .job = "job"}), sequence(workers, 1) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      (void)server.on_message(0.0, message_from(self(i), Kind::kHello));
    }
    Message create = create_message(self(0), "sync");
    VariableSpecs specs = VariableSpecs::of(create.text);
    specs.mode.backup_workers = backup_workers;
    create.text = specs.text();
    (void)server.on_message(0.0, create);
  }
  static Address self(std::uint32_t i) { return {Role::kWorker, i, 5 + i}; }
  void pull(std::uint32_t i) {
    (void)server.on_message(now, message_from(self(i), Kind::kPull, ++sequence[i]));
  }
  bool is_dropped(std::uint32_t i, std::uint64_t version) {
    Message push = message_from(self(i), Kind::kPush, ++sequence[i]);
    push.version = version;
    for (const Message& one : server.on_message(now, push)) {
      if (one.kind == Kind::kAck && one.to == self(i)) return one.dropped;
    }
    ADD_FAILURE() << "no answer";
    return false;
  }
  std::uint64_t version() { return server.shard(0)->variables()->version(); }

  ServerState server;
  std::vector<std::uint64_t> sequence;
  double now = 0.0;
};

TEST(ServerProtocol, ARoundWaitsForAWorkerThatWasLateOnceAndHasPulled) {
  Rounds rounds(2);
  EXPECT_FALSE(rounds.is_dropped(0, 0));
  rounds.now = 6.0;  // worker 1 is silent for longer than the time-out
  (void)rounds.server.on_message(6.0, message_from(Rounds::self(0), Kind::kBeat));
  (void)rounds.server.on_tick(6.0);
  ASSERT_EQ(rounds.version(), 1U);
  EXPECT_TRUE(rounds.is_dropped(1, 0));
  rounds.pull(1);
  EXPECT_FALSE(rounds.is_dropped(0, 1));
  EXPECT_EQ(rounds.version(), 1U) << "the round has ended without worker 1";
  EXPECT_FALSE(rounds.is_dropped(1, 1));
  EXPECT_EQ(rounds.version(), 2U);
}

TEST(ServerProtocol, WithBackupWorkersARoundIsAlwaysOfAllButThem) {
  Rounds rounds(3, 1);
  EXPECT_FALSE(rounds.is_dropped(0, 0));
  EXPECT_FALSE(rounds.is_dropped(1, 0));
  ASSERT_EQ(rounds.version(), 1U);
  EXPECT_TRUE(rounds.is_dropped(2, 0));
  EXPECT_FALSE(rounds.is_dropped(0, 1));
  EXPECT_EQ(rounds.version(), 1U) << "one push of three is no round";
  EXPECT_FALSE(rounds.is_dropped(1, 1));
  EXPECT_EQ(rounds.version(), 2U);
}

TEST(ServerProtocol, APushWithoutSamplesCountsForNothing) {
  ServerState server({.workers = 1, .job = "job"});
  const Address worker{Role::kWorker, 0, 5};
  (void)server.on_message(0.0, message_from(worker, Kind::kHello));
  (void)server.on_message(0.0, create_message(worker, "async"));
  Message push = message_from(worker, Kind::kPush, 2);
  push.weight = 0.0;
  EXPECT_THAT(server.on_message(0.0, push), has_kind(Kind::kAck));
  EXPECT_EQ(server.shard(0)->variables()->version(), 0U);
  EXPECT_THAT(server.shard(0)->steps(), testing::ElementsAre(0U));
  // A round of it alone is one update, by nothing.
  Rounds rounds(1);
  Message empty = message_from(Rounds::self(0), Kind::kPush, 2);
  empty.weight = 0.0;
  (void)rounds.server.on_message(0.0, empty);
  EXPECT_EQ(rounds.version(), 1U);
  auto& variables = const_cast<Variables&>(*rounds.server.shard(0)->variables());
  EXPECT_THAT(variables.values({}).whole(), testing::ElementsAre(0.0F));
}

TEST(ServerProtocol, AGradientThatIsNotFiniteIsRefusedAndSaid) {
  Rounds rounds(1);
  Message push = message_from(Rounds::self(0), Kind::kPush, 2);
  push.floats = Floats::of({std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(rounds.server.on_message(0.0, push), has_kind(Kind::kRefused));
  EXPECT_EQ(rounds.version(), 0U);
  EXPECT_THAT(rounds.server.take_news(),
              testing::Contains("a gradient of worker 0 is not a finite number, and is refused"));
}

TEST(ServerProtocol, WhoLeftAndWhoCameIsSaid) {
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
              testing::ElementsAre("worker 0, the chief, has not been heard for 5 s: nobody waits "
                                   "for it any more, and nothing is saved"));
  EXPECT_THAT(counts(6.0),
              testing::AllOf(testing::HasSubstr(R"("chief":false)"),
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

// The earlier start's push may have reached this group alone, and its round may end only once the
// later start has pushed to another one.
TEST(ServerProtocol, APushOfAnEarlierStartHoldsNobody) {
  ServerState server({.workers = 2, .job = "job"});
  const Address before{Role::kWorker, 0, 5};
  const Address other{Role::kWorker, 1, 6};
  const Address again{Role::kWorker, 0, 7};
  for (const Address& one : {before, other}) {
    (void)server.on_message(0.0, message_from(one, Kind::kHello));
  }
  (void)server.on_message(0.0, create_message(before, "sync"));
  (void)server.on_message(0.0, message_from(before, Kind::kPush, 2));
  EXPECT_THAT(server.on_message(0.1, message_from(before, Kind::kPull, 3)),
              testing::Not(has_kind(Kind::kValues)));  // it waits for the other one's push
  ASSERT_THAT(server.on_message(4.0, message_from(again, Kind::kHello)), has_kind(Kind::kWelcome));
  EXPECT_THAT(server.on_message(4.1, message_from(again, Kind::kPull, 1)), has_kind(Kind::kValues));
}

TEST(ServerProtocol, StaleZeroIsSync) {
  EXPECT_EQ(text_of(mode_of("stale=0")), "sync");
  EXPECT_EQ(text_of(mode_of("stale=3")), "stale=3");
  EXPECT_THROW((void)mode_of("stale="), TrainerError);
  EXPECT_THROW((void)mode_of("slow"), TrainerError);
}

// Two workers whose pushes have weights 1 and 3.
TEST(ServerProtocol, ARoundIsTheAverageBySamples) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}};
  Variables variables(specs, Floats::of({0.0F, 0.0F}));
  Message one;
  one.weight = 1.0;
  one.floats = Floats::of({4.0F, 0.0F});
  Message three;
  three.weight = 3.0;
  three.floats = Floats::of({0.0F, 4.0F});
  const std::vector<const Message*> pushes{&one, &three};
  variables.update(pushes, 1.0);
  EXPECT_THAT(variables.values({}).whole(), testing::ElementsAre(-1.0F, -3.0F));
  EXPECT_EQ(variables.version(), 1U);
}

// A pull sends the variables from where they lie: an update must not be seen in what is under way.
TEST(ServerProtocol, AnUpdateLeavesWhatIsBeingReadAsItIs) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}, {"w", {1}}};
  Variables variables(specs, Floats::of({1.0F, 2.0F, 3.0F}));
  Floats first = variables.values({});
  const float* const lent = first.parts().front().values.data();
  EXPECT_EQ(variables.values({}).parts().front().values.data(), lent);  // where they lie
  Message push;
  push.weight = 1.0;
  push.floats = Floats::of({1.0F});
  push.floats.add(Floats::of({1.0F, 1.0F}));  // cut elsewhere than the variables are
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(first.whole(), testing::ElementsAre(1.0F, 2.0F, 3.0F));
  const Floats second = variables.values({});
  first = {};
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(second.whole(), testing::ElementsAre(0.0F, 1.0F, 2.0F));
  EXPECT_THAT(variables.values({}).whole(), testing::ElementsAre(-1.0F, 0.0F, 1.0F));
}

TEST(ServerProtocol, WhatNobodyReadsIsUpdatedInPlace) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}};
  Variables variables(specs, Floats::of({1.0F, 2.0F}));
  const float* const before = variables.values({}).parts().front().values.data();
  Message push;
  push.weight = 1.0;
  push.floats = Floats::of({1.0F, 1.0F});
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_EQ(variables.values({}).parts().front().values.data(), before);
}

TEST(ServerProtocol, ALoanEndsWithItsLastReader) {
  Loan loan;
  EXPECT_TRUE(loan.ends_within({}));
  const auto memory = std::make_shared<int>(1);
  auto one = loan.owner(memory);
  auto two = loan.owner(std::make_shared<int>(2));
  EXPECT_EQ(one, two);
  one = nullptr;
  EXPECT_FALSE(loan.ends_within({}));
  EXPECT_EQ(memory.use_count(), 2);
  std::jthread reader([last = std::move(two)]() mutable { last = nullptr; });
  EXPECT_TRUE(loan.ends_within(std::chrono::minutes(1)));
  reader.join();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(ServerProtocol, RowsThatComeTwiceAreSummedAndOthersStay) {
  VariableSpecs specs;
  specs.tables = {{.name = "t", .rows = 3, .width = 2, .scale = 0.0}};
  Variables variables(specs, {});
  Message push;
  push.weight = 1.0;
  push.ids = {0, 3, 2, 0, 2};
  push.floats = Floats::of({1.0F, 2.0F, 5.0F, 6.0F, 10.0F, 20.0F});
  ASSERT_TRUE(variables.fits(push.ids, push.floats.size()));
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(variables.values(std::vector<std::int64_t>{0, 3, 0, 1, 2}).whole(),
              testing::ElementsAre(-5.0F, -6.0F, 0.0F, 0.0F, -11.0F, -22.0F));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 5, 1}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{1, 0}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 1, -1}));
}

TEST(ServerProtocol, ALostWorkersTaskRunsElsewhereAndItsResultCountsOnce) {
  CoordinatorState state(2, 5.0);
  const auto task = state.schedule("step");
  Message hello;
  hello.from = {Role::kWorker, 0, 7};
  ASSERT_THAT(state.on_message(0.0, hello), testing::SizeIs(1));
  hello.from = {Role::kWorker, 1, 8};
  EXPECT_THAT(state.on_message(5.5, hello), testing::IsEmpty());
  Messages given = state.on_tick(6.0);  // worker 0 is silent for 6 s
  if (given.empty()) given = state.on_tick(6.1);
  ASSERT_THAT(given, testing::SizeIs(1));
  EXPECT_EQ(given[0].to.index, 1U);
  EXPECT_EQ(state.retried(), 1U);
  Message result = hello;
  result.kind = Kind::kResult;
  result.sequence = task;
  result.text = "second";
  (void)state.on_message(6.2, result);
  result.from = {Role::kWorker, 0, 7};
  result.text = "first, late";
  (void)state.on_message(6.3, result);
  ASSERT_TRUE(state.is_done(task));
  EXPECT_EQ(state.take(task).text, "second");
  EXPECT_TRUE(state.all_done());
}

TEST(ServerProtocol, AWorkerWhoseSetupFailsGetsNothing) {
  CoordinatorState state(2);
  state.add_setup("data", {});
  Message message;
  message.from = {Role::kWorker, 0, 7};
  (void)state.on_message(0.0, message);
  message.from.incarnation = 8;
  const Messages setup = state.on_message(1.0, message);
  ASSERT_THAT(setup, testing::SizeIs(1));
  const auto step = state.schedule("step");
  message.kind = Kind::kFailed;
  message.sequence = setup[0].sequence;
  message.text = "no data on this host";
  EXPECT_THAT(state.on_message(1.1, message), testing::IsEmpty());
  EXPECT_EQ(state.first_failure(), "worker 0 was started again, and no data on this host");
  message = {};
  message.from = {Role::kWorker, 1, 9};
  const Messages given = state.on_message(1.2, message);
  ASSERT_THAT(given, testing::SizeIs(1));
  EXPECT_EQ(given[0].sequence, step);
}

TEST(ServerProtocol, ATaskOfOneWorkerGoesToAnotherWhereThatOneIsLost) {
  CoordinatorState state(2, 5.0, 60.0);
  const auto give = [&](std::uint32_t worker, double now) {
    Message hello;
    hello.from = {Role::kWorker, worker, 7 + worker};
    std::vector<std::uint64_t> given;
    for (const Message& one : state.on_message(now, hello)) given.push_back(one.sequence);
    return given;
  };
  (void)state.schedule("part", {}, 1, false);
  const auto must = state.schedule("part", {}, 1, true);
  EXPECT_THAT(give(0, 0.0), testing::IsEmpty());  // it may come yet
  (void)state.on_tick(0.0);
  EXPECT_THAT(give(1, 0.1), testing::ElementsAre(1U));
  EXPECT_THAT(give(0, 5.0), testing::IsEmpty());
  EXPECT_THAT(state.on_tick(5.2), testing::IsEmpty());  // worker 1 is lost
  EXPECT_THAT(give(0, 5.3), testing::ElementsAre(1U));
  EXPECT_FALSE(state.is_done(must));
}

}  // namespace
}  // namespace ronde::trainer::server
