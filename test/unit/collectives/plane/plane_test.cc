// SPDX-License-Identifier: Apache-2.0
// The data planes but for the values of results, which test/conformance/planes_test.cc compares:
// barriers, broken connections, and how settings cut windows.
#include "collectives/plane/plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "test/conformance/planes.h"

namespace ronde::collectives {
namespace {

using base::Status;
using conformance::Case;
using conformance::Cases;
using conformance::Hosts;
using conformance::Planes;
using ::testing::HasSubstr;
using ::testing::StartsWith;

base::Config config_of(const std::vector<std::string>& environment) {
  auto config = base::Config::from_environment(environment, nullptr);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

Exchange barrier(std::uint64_t sequence) {
  Exchange exchange;
  exchange.operation = base::Operation::kBarrier;
  exchange.sequence = sequence;
  return exchange;
}

// Sums of f32 numbers in place.
conformance::Lists sums(const Planes& planes, std::int64_t elements,
                        Case::Memory memory = Case::Memory::kInPlace) {
  return lists_of(planes.settings(), [&](const Hosts& hosts, int rank) {
    Cases cases(hosts, rank);
    cases.allreduce({}, elements, memory);
    return cases.take();
  });
}

class EveryPlane : public ::testing::TestWithParam<conformance::Job> {
 protected:
  [[nodiscard]] static conformance::PlaneSettings settings() {
    return {.leaders = GetParam().leaders,
            .messages = GetParam().messages,
            .environment = {"RONDE_ALGORITHM=ring", "RONDE_SEGMENT_BYTES=256"}};
  }
};

TEST_P(EveryPlane, NobodyPassesABarrierBeforeAllHaveCome) {
  Planes planes(settings());
  for (int late = 0; late < planes.size(); ++late) {
    std::vector<std::unique_ptr<Collective>> open;
    for (int rank = 0; rank < planes.size(); ++rank) {
      open.push_back(planes.of(rank).make(barrier(at(late))).value());
    }
    for (int round = 0; round < 50; ++round) {
      for (int rank = 0; rank < planes.size(); ++rank) {
        if (rank == late) continue;
        const auto result = open[at(rank)]->step();
        ASSERT_TRUE(result.ok());
        ASSERT_NE(*result, StepResult::kDone) << "rank " << rank << " before " << late;
      }
    }
    planes.ranks().expect_done(open);
  }
}

// The ranks that use it get an error, and nothing hangs or touches memory that was freed.
TEST_P(EveryPlane, ACutLinkIsAnError) {
  const auto& leaders = GetParam().leaders;
  const int other = GetParam().messages ? 1 : *std::ranges::max_element(leaders);
  if (other == 0 || leaders.size() == 1) return;  // no messages
  conformance::PlaneSettings settings = EveryPlane::settings();
  settings.slot_lines = 2;
  settings.block = 1000;
  const auto lists = drawn_lists(Planes(settings), 1, 60);
  for (std::int64_t after = 0; after < 20; ++after) {
    settings.faults = {.seed = 1, .max_delay = 1, .cuts = {{0, other, after}}};
    Planes planes(settings);
    int errors = 0;
    for (const Outcome& outcome : try_in_turn(planes, lists, at(after))) {
      errors += outcome.status.code() == base::Code::kTransport ? 1 : 0;
    }
    EXPECT_GE(errors, 1) << "after " << after;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, EveryPlane, ::testing::ValuesIn(conformance::jobs()),
                         [](const auto& job) { return text_of(job.param); });

// Returns the tuning that the leader publishes with these settings, and its description.
std::pair<SlotTuning, std::string> tuned(const std::vector<std::string>& settings) {
  Planes planes({.leaders = {0, 0, 0}, .tuned = false});
  const base::Config config = config_of(settings);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < planes.size(); ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_TRUE(planes.of(rank)
                      .tune(config,
                            [] {
                              std::this_thread::yield();
                              return Status();
                            })
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {planes.board(0).tuning().value(), planes.of(2).description()};
}

TEST(InHostPlane, SettingsDecideHowWindowsAreCut) {
  const auto [tuning, text] = tuned({"RONDE_PIECE_BYTES=1000", "RONDE_STORES=streaming"});
  EXPECT_EQ(tuning.piece_bytes, 1024) << "whole lines";
  EXPECT_EQ(tuning.store, StoreKind::kStreaming);
  EXPECT_THAT(text, HasSubstr("pieces of at most 1024 bytes, streaming stores"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("best of")));
}

TEST(InHostPlane, OneSettingLeavesTheOtherOpen) {
  EXPECT_EQ(tuned({"RONDE_STORES=streaming"}).first.store, StoreKind::kStreaming);
  EXPECT_EQ(tuned({"RONDE_PIECE_BYTES=4096"}).first.piece_bytes, 4096);
  EXPECT_EQ(tuned({}).first.store, StoreKind::kTemporal);
}

// Tells whether the slots of a rank hold anything but the places of tensors: neither zeros nor what
// free buffers are overwritten with.
bool slots_hold_numbers(Planes& planes) {
  for (int rank = 0; rank < planes.size(); ++rank) {
    const Slots slots(planes.board(rank));
    for (const std::uint64_t window : {0U, 1U}) {
      const std::span all(slots.buffer(rank, window), at(slots.buffer_bytes()));
      const std::byte free = all.back();
      const auto numbers = all.subspan(64);
      if (!std::all_of(numbers.begin(), numbers.end(), [&](std::byte b) { return b == free; })) {
        return true;
      }
    }
  }
  return false;
}

TEST(InHostPlane, TensorsOnTheBoardAreSummedWhereTheyLie) {
  for (const auto memory : {Case::Memory::kOnBoard, Case::Memory::kInPlace}) {
    Planes planes({.leaders = {0, 0, 0}});
    run_in_turn(planes, sums(planes, 30000, memory), 1);
    EXPECT_EQ(slots_hold_numbers(planes), memory == Case::Memory::kInPlace);
  }
}

TEST(InHostPlane, BlocksOnTheBoardAreReadWhereTheyLie) {
  const std::vector<std::function<void(Cases&, Case::Memory)>> operations = {
      [](Cases& cases, Case::Memory memory) {
        cases.allgather(base::DType::kF32, {30000, 20000, 10000}, 1, memory);
      },
      [](Cases& cases, Case::Memory memory) {
        cases.reduce_scatter({}, 60000, {30000, 0, 30000}, memory);
      }};
  for (const auto& operation : operations) {
    for (const bool on_board : {true, false}) {
      Planes planes({.leaders = {0, 0, 0}});
      run_in_turn(planes,
                  lists_of(planes.settings(),
                           [&](const Hosts& hosts, int rank) {
                             Cases cases(hosts, rank);
                             const bool makes_result = &operation == &operations.front();
                             operation(cases, on_board       ? Case::Memory::kOnBoard
                                              : makes_result ? Case::Memory::kResult
                                                             : Case::Memory::kApart);
                             return cases.take();
                           }),
                  1);
      EXPECT_EQ(slots_hold_numbers(planes), !on_board);
    }
  }
}

TEST(InHostPlane, WhatTheLeaderPublishedIsUsed) {
  Planes planes({.leaders = {0, 0, 0}, .tuned = false});
  planes.board(0).publish_tuning({256, StoreKind::kStreaming});
  EXPECT_TRUE(planes.of(1).tune(config_of({}), [] { return Status(); }).ok());
  EXPECT_THAT(planes.of(1).description(),
              HasSubstr("pieces of at most 256 bytes, streaming stores"));
}

TEST(InHostPlane, TuningEndsWithTheErrorOfWhoWaits) {
  Planes planes({.leaders = {0, 0, 0}, .tuned = false});
  const Status status = planes.of(1).tune(config_of({}), [] {
    return Status::error(base::Code::kDeadline, "the leader did not come");
  });
  EXPECT_EQ(status.message(), "the leader did not come");
}

TEST(InHostPlane, WhoAskedIsRung) {
  Planes planes({.leaders = {0, 0, 0}});
  planes.of(1).want_rings(true);
  const auto collective = planes.of(0).make(barrier(1)).value();
  ASSERT_TRUE(collective->step().ok());
  EXPECT_EQ(planes.board(0).doorbell(1).rings(), 1U);
  EXPECT_EQ(planes.board(0).doorbell(2).rings(), 0U);
}

TEST(MessagePlane, DescribesItself) {
  Planes planes({.leaders = {0, 0}, .messages = true, .environment = {"RONDE_ALGORITHM=gather"}});
  EXPECT_THAT(planes.of(0).description(), HasSubstr("as RONDE_ALGORITHM=gather asks"));
  EXPECT_THAT(planes.of(0).description(), HasSubstr("every rank counts as a host"));
}

// In a ring of four, ranks 0 and 2 send each other no messages; in direct all ranks do.
TEST(TwoLevelPlane, AReduceScatterTakesTheRingOrDirect) {
  for (const std::string name : {"ring", "direct", "gather"}) {
    Planes planes({.leaders = {0, 1, 2, 3},
                   .environment = {"RONDE_ALGORITHM=" + name},
                   .faults = {.cuts = {{0, 2, 0}}}});
    const auto lists = lists_of(planes.settings(), [](const Hosts& hosts, int rank) {
      Cases cases(hosts, rank);
      cases.reduce_scatter({}, 256, {}, Case::Memory::kApart);
      return cases.take();
    });
    const auto outcomes = try_in_turn(planes, lists, 1);
    EXPECT_EQ(outcomes[0].done, name == "ring") << name;
    EXPECT_EQ(outcomes[2].done, name == "ring") << name;
  }
}

TEST(TwoLevelPlane, SaysWhatWasChosenAndWhy) {
  const auto text = [](const std::vector<std::int32_t>& leaders, const std::string& algorithm) {
    Planes planes({.leaders = leaders, .environment = {"RONDE_ALGORITHM=" + algorithm}});
    return planes.of(planes.size() - 1).description();
  };
  EXPECT_THAT(text({0, 0, 2, 2}, "auto"),
              StartsWith("hosts: gather up to 61440 bytes, the ring above; 2 hosts x 2 ranks; "
                         "pieces of at most "));
  EXPECT_THAT(text({0, 1, 2, 3}, "auto"),
              "hosts: gather up to 4267 bytes, direct up to 53333, the ring above; "
              "4 hosts x 1 rank");
  EXPECT_THAT(text({0, 1, 2}, "auto"),
              "hosts: gather up to 7286 bytes, direct up to 30000, the ring above; "
              "3 hosts x 1 rank");
  EXPECT_THAT(text({0, 0, 2}, "direct"),
              HasSubstr("the direct, as RONDE_ALGORITHM=direct asks; hosts of 2 + 1 ranks"));
}

}  // namespace
}  // namespace ronde::collectives
