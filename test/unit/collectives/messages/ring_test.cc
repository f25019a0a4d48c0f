// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/ring.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "test/unit/collectives/job_of_ranks.h"
#include "test/unit/collectives/rule_oracle.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::DType;
using base::Elements;
using base::ReduceOp;
using base::TensorView;
using Memory = std::vector<std::byte>;
using Collectives = std::vector<std::unique_ptr<Collective>>;

// Returns numbers that differ on every rank and at every index, and whose sums are exact in f32.
Memory numbers(int rank, std::int64_t elements) {
  Memory memory(at(elements) * sizeof(float));
  for (std::int64_t i = 0; i < elements; ++i) {
    const float value = static_cast<float>(i % 1000 + 1) * static_cast<float>(1 << rank);
    oracle::store(DType::kF32, memory.data(), i, std::bit_cast<std::uint32_t>(value));
  }
  return memory;
}

// The tensors of all ranks of an allreduce.
struct Vectors {
  Vectors(int ranks, const std::vector<std::int64_t>& lengths, bool same_place)
      : in_place(same_place) {
    inputs.resize(at(ranks));
    outputs.resize(at(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const std::int64_t length : lengths) {
        inputs[at(rank)].push_back(numbers(rank, length));
        outputs[at(rank)].push_back(in_place ? inputs[at(rank)].back()
                                             : Memory(at(length) * sizeof(float)));
      }
    }
    for (std::size_t tensor = 0; tensor < lengths.size(); ++tensor) {
      std::vector<Memory> contributions;
      for (const auto& of_rank : inputs) contributions.push_back(of_rank[tensor]);
      expected.push_back(oracle::allreduce({.dtype = DType::kF32}, contributions));
    }
  }

  fusion::FusedView view(int rank) {
    std::vector<TensorView> tensors;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      Memory& output = outputs[at(rank)][i];
      const Memory& input = in_place ? output : inputs[at(rank)][i];
      tensors.push_back({input.data(), output.data(),
                         Elements(std::ssize(output) / std::int64_t{sizeof(float)}), DType::kF32});
    }
    return {tensors, static_cast<int>(inputs.size())};
  }

  std::vector<std::vector<Memory>> inputs;
  std::vector<std::vector<Memory>> outputs;
  std::vector<Memory> expected;
  bool in_place;
};

Collectives start_allreduce(JobOfRanks& job, Vectors& vectors, std::int64_t segment) {
  Collectives collectives;
  for (int rank = 0; rank < job.size(); ++rank) {
    collectives.push_back(ring_allreduce(job.transport(rank), job.workspace(rank),
                                         vectors.view(rank), {.dtype = DType::kF32}, job.size(),
                                         Bytes(segment), 16));
  }
  return collectives;
}

void expect_allreduce(JobOfRanks& job, const std::vector<std::int64_t>& lengths, bool in_place,
                      std::int64_t segment, std::uint64_t seed) {
  Vectors vectors(job.size(), lengths, in_place);
  Collectives collectives = start_allreduce(job, vectors, segment);
  job.expect_done(collectives, seed);
  for (int rank = 0; rank < job.size(); ++rank) {
    ASSERT_EQ(vectors.outputs[at(rank)], vectors.expected) << "rank " << rank;
  }
}

class RingTest : public testing::TestWithParam<int> {};

TEST_P(RingTest, AllreduceOfEveryLengthInAndOutOfPlace) {
  JobOfRanks job(GetParam());
  std::uint64_t seed = 0;
  for (const std::int64_t length : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 5003}) {
    for (const std::int64_t segment : {64, 192, 100'000}) {
      for (const bool in_place : {false, true}) {
        expect_allreduce(job, {length}, in_place, segment, seed++ % 3);
        ASSERT_FALSE(HasFailure()) << length << " elements, segments of " << segment;
      }
    }
  }
}

TEST_P(RingTest, FusedTensorsUnderDelaysAndSynchronousSends) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    JobOfRanks job(GetParam(), {.seed = seed,
                                .max_delay = static_cast<int>(seed % 5),
                                .synchronous_sends = seed % 2 == 0});
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> lengths(1 + random() % 6);
    for (std::int64_t& length : lengths) length = static_cast<std::int64_t>(random() % 900);
    expect_allreduce(job, lengths, seed % 3 == 0, 64 << (seed % 4), seed);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(RingTest, SendsTheLeastBytesAnAllreduceCan) {
  const int ranks = GetParam();
  JobOfRanks job(ranks);
  const std::int64_t lines = 40 * ranks;
  expect_allreduce(job, {lines * 16}, true, 64, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(job.watched(rank).bytes_sent(), 2 * (ranks - 1) * 40 * 64);
  }
}

TEST_P(RingTest, EveryDTypeAndOperationFollowsTheRule) {
  const int ranks = GetParam();
  JobOfRanks job(ranks, {.seed = 5, .max_delay = 2});
  std::mt19937_64 random(9);
  for (const base::DTypeRow& dtype : base::kDTypes) {
    for (const base::ReduceOpRow& op : base::kReduceOps) {
      if (!base::is_defined(dtype.dtype, op.op)) continue;
      const std::int64_t elements = 301;
      std::vector<Memory> inputs(at(ranks), Memory(at(elements * dtype.size)));
      for (Memory& input : inputs) {
        for (std::byte& b : input) b = static_cast<std::byte>(random() % 127);
      }
      const Reduction what{.dtype = dtype.dtype, .op = op.op};
      const Memory expected = oracle::allreduce(what, inputs);
      Collectives collectives;
      for (int rank = 0; rank < ranks; ++rank) {
        Memory& memory = inputs[at(rank)];
        const TensorView tensor{memory.data(), memory.data(), Elements(elements), dtype.dtype};
        collectives.push_back(ring_allreduce(job.transport(rank), job.workspace(rank),
                                             fusion::FusedView({tensor}, ranks), what, ranks,
                                             Bytes(128), 0));
      }
      job.expect_done(collectives, 3);
      for (const Memory& result : inputs) {
        ASSERT_EQ(oracle::first_difference(dtype.dtype, result, expected), -1)
            << dtype.name << " " << op.name;
      }
    }
  }
}

TEST_P(RingTest, AllgatherOfDifferingBlocks) {
  const int ranks = GetParam();
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    JobOfRanks job(ranks, {.seed = seed,
                           .max_delay = static_cast<int>(seed % 3),
                           .synchronous_sends = seed % 2 == 1});
    std::mt19937_64 random(seed);
    const bool in_place = seed % 3 == 0;
    std::vector<Memory> blocks;
    for (int rank = 0; rank < ranks; ++rank) {
      Memory block(random() % 4 == 0 ? 0 : random() % (seed < 6 ? 100 : 3000));
      for (std::byte& b : block) b = static_cast<std::byte>(random());
      blocks.push_back(block);
    }
    std::vector<std::vector<Memory>> outputs(at(ranks));
    Collectives collectives;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<TensorView> views;
      for (const Memory& block : blocks) outputs[at(rank)].emplace_back(block.size());
      if (in_place) outputs[at(rank)][at(rank)] = blocks[at(rank)];
      for (int block = 0; block < ranks; ++block) {
        Memory& output = outputs[at(rank)][at(block)];
        const std::byte* input = in_place ? output.data() : blocks[at(rank)].data();
        views.push_back({block == rank ? input : nullptr, output.data(),
                         Elements(std::ssize(output)), DType::kU8});
      }
      collectives.push_back(ring_allgather(job.transport(rank), job.workspace(rank),
                                           fusion::FusedView::of_chunks(DType::kU8, views),
                                           Bytes(seed % 2 == 0 ? 64 : 512), 3));
    }
    job.expect_done(collectives, seed);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(outputs[at(rank)], blocks) << "rank " << rank << ", seed " << seed;
    }
  }
}

TEST_P(RingTest, AllreducesSideBySideDoNotMix) {
  const int ranks = GetParam();
  JobOfRanks job(ranks, {.seed = 1, .max_delay = 3});
  Vectors first(ranks, {700}, true);
  Vectors second(ranks, {900, 3}, false);
  Collectives collectives;
  for (int rank = 0; rank < ranks; ++rank) {
    // One state machine of two, so that each rank drives both.
    struct Both final : Collective {
      std::unique_ptr<Collective> a, b;
      base::Result<StepResult> step() override {
        bool idle = true;
        for (std::unique_ptr<Collective>* one : {&a, &b}) {
          if (!*one) continue;
          const auto result = (*one)->step();
          if (!result.ok()) return result;
          idle &= *result == StepResult::kIdle;
          if (*result == StepResult::kDone) one->reset();
        }
        if (!a && !b) return StepResult::kDone;
        return idle ? StepResult::kIdle : StepResult::kProgress;
      }
    };
    auto both = std::make_unique<Both>();
    both->a = ring_allreduce(job.transport(rank), job.workspace(rank), first.view(rank),
                             {.dtype = DType::kF32}, ranks, Bytes(64), 0);
    both->b = ring_allreduce(job.transport(rank), job.workspace(rank), second.view(rank),
                             {.dtype = DType::kF32}, ranks, Bytes(128), kTagsPerCollective);
    collectives.push_back(std::move(both));
  }
  job.expect_done(collectives, 4);
  for (int rank = 0; rank < ranks; ++rank) {
    ASSERT_EQ(first.outputs[at(rank)], first.expected);
    ASSERT_EQ(second.outputs[at(rank)], second.expected);
  }
}

TEST_P(RingTest, ACutLinkIsAnErrorOnBothRanksAndNothingHangs) {
  const int ranks = GetParam();
  if (ranks == 1) return;  // no links
  for (std::int64_t after = 0; after < 40; ++after) {
    const int a = static_cast<int>(after % ranks);
    const int b = (a + 1) % ranks;
    JobOfRanks job(ranks, {.seed = 1, .max_delay = 1, .cuts = {{a, b, after}}});
    {
      Vectors vectors(ranks, {4000}, after % 2 == 0);
      Collectives collectives = start_allreduce(job, vectors, 64);
      const std::vector<Outcome> outcomes = job.run(collectives, at(after));
      for (const int rank : {a, b}) {
        const base::Status& status = outcomes[at(rank)].status;
        ASSERT_EQ(status.code(), base::Code::kTransport) << "after " << after;
        ASSERT_NE(status.message().find("rank " + std::to_string(a)), std::string::npos);
        ASSERT_NE(status.message().find("rank " + std::to_string(b)), std::string::npos);
      }
      for (const Outcome& outcome : outcomes) ASSERT_FALSE(outcome.done);
    }
    // The user's memory is gone; the engine's is parked as long as something may still arrive
    // there.
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_GT(job.workspace(rank).idle_bytes().value(), 0);
    }
  }
}

TEST_P(RingTest, AMessageOfTheWrongLengthIsAnError) {
  if (GetParam() == 1) return;  // no messages
  JobOfRanks job(GetParam(), {.wrong_lengths = {{.from = 0, .to = 1, .message = 2}}});
  Vectors vectors(job.size(), {4000}, true);
  Collectives collectives = start_allreduce(job, vectors, 64);
  const std::vector<Outcome> outcomes = job.run(collectives);
  EXPECT_EQ(outcomes[1].status.code(), base::Code::kTransport);
}

TEST_P(RingTest, ADroppedCollectiveParksItsMemory) {
  if (GetParam() == 1) return;  // finishes without messages
  JobOfRanks job(GetParam());
  Vectors vectors(job.size(), {4000}, true);
  Collectives collectives = start_allreduce(job, vectors, 64);
  ASSERT_TRUE(collectives[0]->step().ok());
  ASSERT_GT(job.transport(0).outstanding(), 0);
  collectives.clear();
  const std::int64_t parked = job.workspace(0).idle_bytes().value();
  EXPECT_GT(parked, 0);
  const auto block = job.workspace(0).acquire(job.transport(0), Bytes(64));
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(job.workspace(0).idle_bytes().value(), parked) << "not handed out again";
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingTest, testing::Range(1, 9));

}  // namespace
}  // namespace ronde::collectives
