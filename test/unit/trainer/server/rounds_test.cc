// SPDX-License-Identifier: Apache-2.0
// A group on one server, by hand: whose push counts, and which workers a round waits for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/server/shard_kit.h"

namespace ronde::trainer::server {
namespace {

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

TEST(ServerRounds, ARoundWaitsForAWorkerThatWasLateOnceAndHasPulled) {
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

TEST(ServerRounds, WithBackupWorkersARoundIsAlwaysOfAllButThem) {
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

TEST(ServerRounds, APushWithoutSamplesCountsForNothing) {
  ServerState server({.workers = 1, .job = "job"});
  const Address worker{Role::kWorker, 0, 5};
  (void)server.on_message(0.0, message_from(worker, Kind::kHello));
  (void)server.on_message(0.0, create_message(worker, "async"));
  Message push = message_from(worker, Kind::kPush, 2);
  push.weight = 0.0;
  EXPECT_THAT(server.on_message(0.0, push), has_kind(Kind::kAck));
  EXPECT_EQ(server.shard(0)->variables()->version(), 0U);
  EXPECT_THAT(server.shard(0)->counts().steps_by_worker, testing::ElementsAre(0U));
  // A round of it alone is one update, by nothing.
  Rounds rounds(1);
  Message empty = message_from(Rounds::self(0), Kind::kPush, 2);
  empty.weight = 0.0;
  (void)rounds.server.on_message(0.0, empty);
  EXPECT_EQ(rounds.version(), 1U);
  auto& variables = const_cast<Variables&>(*rounds.server.shard(0)->variables());
  EXPECT_THAT(variables.values({}).whole(), testing::ElementsAre(0.0F));
}

TEST(ServerRounds, AGradientThatIsNotFiniteIsRefusedAndSaid) {
  Rounds rounds(1);
  Message push = message_from(Rounds::self(0), Kind::kPush, 2);
  push.floats = Floats::of({std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THAT(rounds.server.on_message(0.0, push), has_kind(Kind::kRefused));
  EXPECT_EQ(rounds.version(), 0U);
  EXPECT_THAT(rounds.server.take_news(),
              testing::Contains("a gradient of worker 0 is not a finite number, and is refused"));
}

// The earlier start's push may have reached this group alone, and its round may end only once the
// later start has pushed to another one.
TEST(ServerRounds, APushOfAnEarlierStartHoldsNobody) {
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

TEST(ServerRounds, StaleZeroIsSync) {
  EXPECT_EQ(text_of(mode_of("stale=0")), "sync");
  EXPECT_EQ(text_of(mode_of("stale=3")), "stale=3");
  EXPECT_THROW((void)mode_of("stale="), TrainerError);
  EXPECT_THROW((void)mode_of("slow"), TrainerError);
}

}  // namespace
}  // namespace ronde::trainer::server
