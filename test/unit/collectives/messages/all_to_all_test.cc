// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/all_to_all.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/messages/segment_plan.h"
#include "test/unit/collectives/job_of_ranks.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::Code;
using base::Result;
using base::Status;
using Memory = std::vector<std::byte>;
using Rows = std::vector<std::int64_t>;
using Random = std::mt19937_64;
using Collectives = std::vector<std::unique_ptr<Collective>>;

// The memory of all ranks: rank s has rows[s][r] rows for rank r.
struct Exchange {
  Exchange(std::vector<Rows> rows_of_ranks, std::int64_t bytes_of_row, Random& random)
      : rows(std::move(rows_of_ranks)),
        row_bytes(bytes_of_row),
        outputs(rows.size()),
        received(rows.size()),
        allocations(rows.size(), 0),
        expected(rows.size()) {
    for (const Rows& of_rank : rows) {
      Memory input;
      for (std::size_t to = 0; to < rows.size(); ++to) {
        Memory block(at(of_rank[to] * row_bytes));
        for (std::byte& b : block) b = static_cast<std::byte>(random());
        input.insert(input.end(), block.begin(), block.end());
        expected[to].insert(expected[to].end(), block.begin(), block.end());
      }
      inputs.push_back(input);
    }
    given = inputs;
  }

  std::unique_ptr<Collective> start(JobOfRanks& job, int rank, std::int64_t segment, int tag) {
    job.watched(rank).keep_out_of(inputs[at(rank)]);
    return all_to_all(
        job.transport(rank), job.workspace(rank),
        {.input = inputs[at(rank)].data(), .rows = rows[at(rank)], .row_bytes = Bytes(row_bytes)},
        [this, &job, rank](std::span<const std::int64_t> counts) -> Result<std::span<std::byte>> {
          ++allocations[at(rank)];
          received[at(rank)].assign(counts.begin(), counts.end());
          Memory& output = outputs[at(rank)];
          output.resize(
              at(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) * row_bytes));
          job.watched(rank).keep_out_of(output);
          return std::span(output);
        },
        Bytes(segment), tag);
  }
  Collectives start_all(JobOfRanks& job, std::int64_t segment, int tag = 0) {
    Collectives collectives;
    for (int rank = 0; rank < job.size(); ++rank) {
      collectives.push_back(start(job, rank, segment, tag));
    }
    return collectives;
  }

  void expect_results() const {
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      Rows counts;
      for (const Rows& of_rank : rows) counts.push_back(of_rank[rank]);
      ASSERT_EQ(allocations[rank], 1);
      ASSERT_EQ(received[rank], counts) << "rank " << rank;
      ASSERT_EQ(outputs[rank], expected[rank]) << "rank " << rank;
      ASSERT_EQ(inputs[rank], given[rank]) << "an input changed";
    }
  }

  std::vector<Rows> rows;
  std::int64_t row_bytes;
  std::vector<Memory> inputs;
  std::vector<Memory> given;
  std::vector<Memory> outputs;
  std::vector<Rows> received;
  std::vector<int> allocations;
  std::vector<Memory> expected;
};

std::vector<Rows> random_rows(int ranks, std::uint64_t below, Random& random) {
  std::vector<Rows> rows(at(ranks), Rows(at(ranks)));
  for (Rows& of_rank : rows) {
    for (std::int64_t& number : of_rank) {
      number = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % below);
    }
  }
  return rows;
}

class AllToAllTest : public testing::TestWithParam<int> {};

TEST_P(AllToAllTest, UnevenAndEmptyBlocks) {
  JobOfRanks job(GetParam());
  Random random(1);
  for (std::uint64_t round = 0; round < 60; ++round) {
    const std::int64_t row_bytes = std::vector<std::int64_t>{1, 3, 4, 64, 200}[round % 5];
    const std::int64_t segment = round % 3 == 0 ? 1 : round % 3 == 1 ? 192 : 100'000;
    Exchange exchange(random_rows(job.size(), round < 30 ? 5 : 60, random), row_bytes, random);
    Collectives collectives = exchange.start_all(job, segment);
    job.expect_done(collectives, round % 4);
    exchange.expect_results();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_P(AllToAllTest, NothingAtAllAndRowsWithoutBytes) {
  JobOfRanks job(GetParam());
  Random random(1);
  const std::vector<Rows> none(at(job.size()), Rows(at(job.size()), 0));
  const std::vector<Rows> some(at(job.size()), Rows(at(job.size()), 3));
  for (const auto& [rows, row_bytes] : {std::pair{none, 4}, std::pair{some, 0}}) {
    Exchange exchange(rows, row_bytes, random);
    Collectives collectives = exchange.start_all(job, 64);
    job.expect_done(collectives);
    exchange.expect_results();
  }
  // Only the numbers of rows were sent.
  EXPECT_EQ(job.watched(0).bytes_sent(), 2 * 8 * (job.size() - 1));
}

TEST_P(AllToAllTest, UnderDelaysAndSynchronousSends) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    JobOfRanks job(GetParam(), {.seed = seed,
                                .max_delay = static_cast<int>(seed % 5),
                                .synchronous_sends = seed % 2 == 0});
    Random random(seed);
    Exchange exchange(random_rows(job.size(), 400, random), 12, random);
    Collectives collectives = exchange.start_all(job, 64 << (seed % 3), 5);
    job.expect_done(collectives, seed);
    exchange.expect_results();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(AllToAllTest, OneBlockMuchLargerThanTheOthers) {
  const int ranks = GetParam();
  for (int from = 0; from < ranks; ++from) {
    JobOfRanks job(ranks, {.seed = 3, .max_delay = 2, .synchronous_sends = true});
    Random random(at(from));
    std::vector<Rows> rows(at(ranks), Rows(at(ranks), 1));
    rows[at(from)][at(ranks - 1 - from)] = 2000;
    Exchange exchange(rows, 4, random);
    Collectives collectives = exchange.start_all(job, 64);
    job.expect_done(collectives, 1);
    exchange.expect_results();
  }
}

TEST_P(AllToAllTest, SendsEachBlockOnceAndHasAFewSegmentsInFlight) {
  const int ranks = GetParam();
  JobOfRanks job(ranks, {.seed = 9, .max_delay = 4, .synchronous_sends = true});
  Random random(4);
  Exchange exchange(random_rows(ranks, 500, random), 8, random);
  Collectives collectives = exchange.start_all(job, 64);
  job.expect_done(collectives, 2);
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t bytes = 8 * (ranks - 1);  // the numbers
    std::int64_t messages = ranks - 1;
    for (int to = 0; to < ranks; ++to) {
      if (to == rank) continue;
      bytes += 8 * exchange.rows[at(rank)][at(to)];
      messages += (8 * exchange.rows[at(rank)][at(to)] + 63) / 64;
    }
    EXPECT_EQ(job.watched(rank).bytes_sent(), bytes);
    EXPECT_EQ(job.watched(rank).messages(), messages);
    EXPECT_LE(job.watched(rank).most_outstanding(), 2 * kSegmentsInFlight);
  }
}

// Even while something else is outstanding, the memory of a finished exchange is released and not
// parked.
TEST_P(AllToAllTest, HandsItsMemoryBackAfterEachExchange) {
  JobOfRanks job(GetParam());
  Memory elsewhere(1);
  ASSERT_TRUE(job.transport(0).receive(0, 999, elsewhere).ok());
  Random random(4);
  for (int round = 0; round < 3; ++round) {
    Exchange exchange(random_rows(job.size(), 500, random), 8, random);
    Collectives collectives = exchange.start_all(job, 64);
    for (const Outcome& outcome : job.run(collectives)) ASSERT_TRUE(outcome.done);
    collectives.clear();
    EXPECT_LE(job.workspace(0).idle_bytes().value(), 4096);
  }
}

TEST_P(AllToAllTest, SideBySideAndOneAfterAnotherTheyDoNotMix) {
  const int ranks = GetParam();
  JobOfRanks job(ranks, {.seed = 1, .max_delay = 3});
  Random random(2);
  Exchange first(random_rows(ranks, 90, random), 16, random);
  Exchange second(random_rows(ranks, 200, random), 4, random);
  // One state machine of two, so that each rank drives both; ranks are ahead of each other.
  struct Both final : Collective {
    std::vector<std::unique_ptr<Collective>> parts;
    Result<StepResult> step() override {
      bool idle = true;
      for (std::unique_ptr<Collective>& part : parts) {
        if (!part) continue;
        const auto result = part->step();
        if (!result.ok()) return result;
        idle &= *result == StepResult::kIdle;
        if (*result == StepResult::kDone) part.reset();
      }
      const auto gone = [](const auto& part) { return !part; };
      if (std::all_of(parts.begin(), parts.end(), gone)) return StepResult::kDone;
      return idle ? StepResult::kIdle : StepResult::kProgress;
    }
  };
  Collectives collectives;
  for (int rank = 0; rank < ranks; ++rank) {
    auto both = std::make_unique<Both>();
    both->parts.push_back(first.start(job, rank, 64, 0));
    both->parts.push_back(second.start(job, rank, 128, kTagsPerCollective));
    collectives.push_back(std::move(both));
  }
  job.expect_done(collectives, 4);
  first.expect_results();
  second.expect_results();
}

TEST_P(AllToAllTest, ACutLinkIsAnErrorOnBothRanks) {
  const int ranks = GetParam();
  if (ranks == 1) return;  // no links
  for (std::int64_t after = 0; after < 30; ++after) {
    const int a = static_cast<int>(after % ranks);
    const int b = (a + 1) % ranks;
    JobOfRanks job(ranks, {.seed = 1, .max_delay = 1, .cuts = {{a, b, after}}});
    {
      Random random(7);
      Exchange exchange(std::vector<Rows>(at(ranks), Rows(at(ranks), 300)), 4, random);
      Collectives collectives = exchange.start_all(job, 64);
      const std::vector<Outcome> outcomes = job.run(collectives, at(after));
      for (const int rank : {a, b}) {
        const Status& status = outcomes[at(rank)].status;
        ASSERT_EQ(status.code(), Code::kTransport) << "after " << after;
        ASSERT_NE(status.message().find("rank " + std::to_string(a)), std::string::npos);
        ASSERT_NE(status.message().find("rank " + std::to_string(b)), std::string::npos);
      }
    }
    EXPECT_GT(job.workspace(a).idle_bytes().value(), 0);
  }
}

TEST_P(AllToAllTest, AMessageOfTheWrongLengthIsAnErrorInBothExchanges) {
  if (GetParam() == 1) return;  // no messages
  for (const std::int64_t message : {0, 1, 2}) {
    JobOfRanks job(GetParam(), {.wrong_lengths = {{.from = 0, .to = 1, .message = message}}});
    Random random(7);
    Exchange exchange(std::vector<Rows>(at(job.size()), Rows(at(job.size()), 300)), 4, random);
    Collectives collectives = exchange.start_all(job, 64);
    const std::vector<Outcome> outcomes = job.run(collectives);
    EXPECT_EQ(outcomes[1].status.code(), Code::kTransport) << "message " << message;
    EXPECT_EQ(exchange.allocations[1], message == 0 ? 0 : 1);
  }
}

TEST_P(AllToAllTest, WhatTheAllocationSaysIsReported) {
  JobOfRanks job(GetParam());
  Random random(7);
  const int ranks = job.size();
  Exchange exchange(std::vector<Rows>(at(ranks), Rows(at(ranks), 300)), 4, random);
  Collectives collectives = exchange.start_all(job, 64);
  collectives[0] = all_to_all(
      job.transport(0), job.workspace(0),
      {.input = exchange.inputs[0].data(), .rows = exchange.rows[0], .row_bytes = Bytes(4)},
      [](std::span<const std::int64_t>) -> Result<std::span<std::byte>> {
        return Status::error(Code::kOutOfMemory, "there is none");
      },
      Bytes(64), 0);
  const std::vector<Outcome> outcomes = job.run(collectives);
  EXPECT_EQ(outcomes[0].status.code(), Code::kOutOfMemory);
  EXPECT_EQ(outcomes[0].status.message(), "there is none");
}

TEST(AllToAll, NumbersThatCannotBeAreAnErrorThatNamesTheRank) {
  for (const std::int64_t nonsense : {std::int64_t{-1}, std::int64_t{1} << 62}) {
    JobOfRanks job(2);
    Random random(7);
    Exchange exchange({{1, 1}, {1, 1}}, 4, random);
    const std::unique_ptr<Collective> collective = exchange.start(job, 0, 64, 0);
    std::int64_t received = 0;
    ASSERT_TRUE(
        job.transport(1).send(0, 0, std::as_bytes(std::span(&nonsense, std::size_t{1}))).ok());
    ASSERT_TRUE(job.transport(1)
                    .receive(0, 0, std::as_writable_bytes(std::span(&received, std::size_t{1})))
                    .ok());
    Result<StepResult> result = StepResult::kIdle;
    for (int step = 0; step < 10 && result.ok(); ++step) result = collective->step();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::kTransport);
    EXPECT_NE(result.status().message().find("rank 1 announced " + std::to_string(nonsense)),
              std::string::npos)
        << result.status().to_string();
    EXPECT_EQ(exchange.allocations[0], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllToAllTest, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace ronde::collectives
