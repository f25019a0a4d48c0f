// SPDX-License-Identifier: Apache-2.0
// Every operation that passes messages, but for the values of its results: what it sends, the
// memory that it takes, and what it does when messages are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/messages/gather.h"
#include "collectives/messages/segment_plan.h"
#include "test/conformance/planes.h"

namespace ronde::collectives {
namespace {

using base::Operation;
using conformance::Case;
using conformance::Cases;
using conformance::Hosts;
using conformance::Planes;
using conformance::Rows;

struct Kind {
  Operation operation;
  const char* algorithm = "ring";

  [[nodiscard]] std::string name() const {
    std::string name = std::string(base::row(operation).name) + algorithm;
    std::erase_if(name, [](char c) { return c == '-' || c == '_' || c == ' '; });
    return name;
  }
};

constexpr std::int64_t kLines = 24;  // of the chunk or the block of each rank
constexpr std::int64_t kElements = kLines * 16;

class MessagesTest : public ::testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  static const Kind& kind() { return std::get<0>(GetParam()); }
  static int ranks() { return std::get<1>(GetParam()); }

  static Planes planes(FaultPlan faults = {}, std::int64_t segment = 64) {
    return Planes({.leaders = conformance::Leaders(at(ranks()), 0),
                   .messages = true,
                   .environment = {std::string("RONDE_ALGORITHM=") + kind().algorithm,
                                   "RONDE_SEGMENT_BYTES=" + std::to_string(segment)},
                   .faults = std::move(faults)});
  }
  // The operation with f32 numbers, one or several times.
  static conformance::Lists lists(const Planes& planes, int times = 1,
                                  base::Compression compression = base::Compression::kNone) {
    return lists_of(planes.settings(), [&](const Hosts& hosts, int rank) {
      Cases cases(hosts, rank);
      const Reduction what{.compression = compression};
      const Rows rows(at(ranks()), kElements);
      for (int i = 0; i < times; ++i) {
        const auto memory = i % 2 == 0 ? Case::Memory::kInPlace : Case::Memory::kApart;
        if (kind().operation == Operation::kAllreduce) {
          cases.allreduce(what, kElements * ranks(), memory);
        } else if (kind().operation == Operation::kReduceScatter) {
          cases.reduce_scatter(what, kElements * ranks(), rows, memory);
        } else if (kind().operation == Operation::kBroadcast) {
          cases.broadcast(what.dtype, {kElements}, 0, memory);
        } else if (kind().operation == Operation::kAllgather) {
          cases.allgather(what.dtype, rows);
        } else if (kind().operation == Operation::kAllToAll) {
          cases.all_to_all(what.dtype, {at(ranks()), rows});
        } else {
          cases.barrier();
        }
      }
      return cases.take();
    });
  }
  // The bytes that a rank sends where every rank sends as many; -1 where they differ.
  static std::int64_t bytes_of_a_rank(std::int64_t line) {
    const std::int64_t others = (ranks() - 1) * kLines * line;
    if (std::string(kind().algorithm) == "gather") return -1;
    switch (kind().operation) {
      case Operation::kAllreduce:
        return 2 * others;
      case Operation::kReduceScatter:
      case Operation::kAllgather:
        return others;
      case Operation::kAllToAll:
        return others + 8 * (ranks() - 1);  // and the numbers of rows
      case Operation::kBroadcast:
        return -1;
      default:
        return 0;
    }
  }
};

// The least bytes that can be sent; a part of them in each message.
TEST_P(MessagesTest, SendsEveryByteOnceInMessagesOfOneSize) {
  const bool reduces = base::row(kind().operation).reduces;
  for (const std::int64_t segment : {64, 256}) {
    for (const auto compression : {base::Compression::kNone, base::Compression::kBf16}) {
      if (compression != base::Compression::kNone && !reduces) continue;
      Planes all = planes({.seed = 9, .max_delay = 4, .synchronous_sends = true}, segment);
      run_in_turn(all, lists(all, 1, compression), 2);
      const std::int64_t bytes = bytes_of_a_rank(compression == base::Compression::kNone ? 64 : 32);
      for (int rank = 0; rank < ranks() && bytes >= 0; ++rank) {
        const WatchedEnd& end = all.ranks().watched(rank);
        EXPECT_EQ(end.bytes_sent(), bytes);
        if (kind().operation == Operation::kBarrier) {
          EXPECT_EQ(end.messages(), std::bit_width(static_cast<unsigned>(ranks() - 1)));
        } else if (kind().algorithm == std::string("ring")) {
          const int numbers = kind().operation == Operation::kAllToAll ? ranks() - 1 : 0;
          EXPECT_EQ(end.messages(), numbers + (bytes - 8 * numbers) / segment);
        }
      }
    }
  }
}

// What is in flight stays bounded, however many ranks there are and however long the vector is, and
// is handed back.
TEST_P(MessagesTest, TakesTheMemoryOfAFewSegments) {
  Planes all = planes();
  run_in_turn(all, lists(all, 3), 0);
  const bool gathers = kind().algorithm == std::string("gather");
  const std::int64_t message = gathers ? kGatherWindowBytes : 512;
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_LE(all.ranks().workspace(rank).idle_bytes().value(), (1 + ranks()) * 8 * message)
        << rank;
    EXPECT_LE(all.ranks().watched(rank).most_outstanding(), 2 * kSegmentsInFlight * ranks());
  }
}

TEST_P(MessagesTest, ACutLinkIsAnErrorOnBothRanksAndNothingHangs) {
  // A barrier and a gather have one message for each rank.
  const bool few = kind().operation == Operation::kBarrier || kind().algorithm[0] == 'g';
  const auto cases = lists(planes(), few ? 13 : 4);
  for (std::int64_t after = 0; after < 12; ++after) {
    Planes all = planes({.seed = 1, .max_delay = 1, .cuts = {{0, 1, after}}});
    const auto outcomes = try_in_turn(all, cases, at(after));
    for (const int rank : {0, 1}) {
      const base::Status& status = outcomes[at(rank)].status;
      ASSERT_EQ(status.code(), base::Code::kTransport) << "after " << after;
      EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
      // The user's memory is gone; the engine's is parked as long as something may arrive there.
      if (kind().operation == Operation::kAllreduce) {
        EXPECT_GT(all.ranks().workspace(rank).idle_bytes().value(), 0);
      }
    }
  }
}

TEST_P(MessagesTest, AMessageOfTheWrongLengthIsAnError) {
  const auto cases = lists(planes(), 3);
  for (const std::int64_t message : {0, 1, 2}) {
    Planes all = planes({.wrong_lengths = {{.from = 0, .to = 1, .message = message}}});
    const auto outcomes = try_in_turn(all, cases, 0);
    EXPECT_EQ(outcomes[1].status.code(), base::Code::kTransport) << "message " << message;
  }
}

// A rank drives two lists side by side, whose tags differ; ranks are ahead of each other.
TEST_P(MessagesTest, SideBySideTheyDoNotMix) {
  struct Both final : Collective {
    std::vector<std::unique_ptr<Collective>> parts;
    base::Result<StepResult> step() override {
      bool idle = true;
      for (std::unique_ptr<Collective>& part : parts) {
        if (!part) continue;
        RONDE_ASSIGN_OR_RETURN(const StepResult result, part->step());
        idle = idle && result == StepResult::kIdle;
        if (result == StepResult::kDone) part.reset();
      }
      if (std::ranges::all_of(parts, [](const auto& part) { return !part; })) {
        return StepResult::kDone;
      }
      return idle ? StepResult::kIdle : StepResult::kProgress;
    }
  };
  Planes all = planes({.seed = 1, .max_delay = 3});
  const auto first = lists(all, 3);
  const auto second = lists(all, 5);
  std::vector<std::unique_ptr<Collective>> both;
  for (int rank = 0; rank < ranks(); ++rank) {
    auto one = std::make_unique<Both>();
    one->parts.push_back(
        std::make_unique<conformance::RankOfPlanes>(all, rank, first[at(rank)], 0));
    one->parts.push_back(
        std::make_unique<conformance::RankOfPlanes>(all, rank, second[at(rank)], 500));
    both.push_back(std::move(one));
  }
  all.ranks().expect_done(both, 4);
}

TEST_P(MessagesTest, WhatIsDroppedParksItsMemory) {
  if (kind().operation == Operation::kBarrier) return;  // it has none
  Planes all = planes();
  const auto cases = lists(all);
  {
    conformance::RankOfPlanes dropped(all, 1, cases[1]);
    ASSERT_TRUE(dropped.step().ok());
  }
  ASSERT_GT(all.ranks().transport(1).outstanding(), 0);
  Workspace& workspace = all.ranks().workspace(1);
  const std::int64_t parked = workspace.idle_bytes().value();
  EXPECT_GT(parked, 0);
  ASSERT_TRUE(workspace.acquire(all.ranks().transport(1), base::Bytes(64)).ok());
  EXPECT_EQ(workspace.idle_bytes().value(), parked) << "not handed out again";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MessagesTest,
    ::testing::Combine(::testing::Values(Kind{Operation::kAllreduce},
                                         Kind{Operation::kAllreduce, "direct"},
                                         Kind{Operation::kAllreduce, "gather"},
                                         Kind{Operation::kReduceScatter},
                                         Kind{Operation::kBroadcast}, Kind{Operation::kAllgather},
                                         Kind{Operation::kAllToAll}, Kind{Operation::kBarrier}),
                       ::testing::Values(2, 3, 5, 8)),
    [](const auto& one) {
      return std::get<0>(one.param).name() + std::to_string(std::get<1>(one.param));
    });

}  // namespace
}  // namespace ronde::collectives
