// SPDX-License-Identifier: Apache-2.0
// The first half of the ring, against the order rule done serially.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/messages/ring.h"
#include "fusion/chunks.h"
#include "test/unit/collectives/job_of_ranks.h"
#include "test/unit/collectives/ring_oracle.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::Compression;
using base::DType;
using base::Elements;
using base::ReduceOp;
using base::TensorView;
using Memory = std::vector<std::byte>;
using Random = std::mt19937_64;
using Collectives = std::vector<std::unique_ptr<Collective>>;

// The memory of all ranks for a reduce-scatter of blocks of these numbers of elements.
struct Blocks {
  Blocks(const Reduction& reduction, int ranks, const std::vector<std::int64_t>& lengths,
         bool same_place, Random& random)
      : what(reduction), in_place(same_place) {
    inputs.resize(at(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const std::int64_t length : lengths) {
        inputs[at(rank)].push_back(oracle::random_elements(what.dtype, length, random));
      }
      outputs.emplace_back(inputs[at(rank)][at(rank)].size());
    }
    given = inputs;
  }

  fusion::FusedView view(int rank) {
    std::vector<TensorView> views;
    for (int block = 0; block < ranks(); ++block) {
      Memory& input = inputs[at(rank)][at(block)];
      TensorView view{.input = input.data(),
                      .output = nullptr,
                      .elements = Elements(std::ssize(input) / base::size_of(what.dtype)),
                      .dtype = what.dtype};
      if (block == rank) view.output = in_place ? input.data() : outputs[at(rank)].data();
      views.push_back(view);
    }
    return fusion::FusedView::of_chunks(what.dtype, views);
  }

  Collectives start(JobOfRanks& job, std::int64_t segment, int tag = 0) {
    Collectives collectives;
    for (int rank = 0; rank < job.size(); ++rank) {
      for (const Memory& input : inputs[at(rank)]) job.watched(rank).keep_out_of(input);
      job.watched(rank).keep_out_of(outputs[at(rank)]);
      collectives.push_back(ring_reduce_scatter(job.transport(rank), job.workspace(rank),
                                                view(rank), what, job.size(), Bytes(segment), tag));
    }
    return collectives;
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(inputs.size()); }
  [[nodiscard]] const Memory& result(int rank) const {
    return in_place ? inputs[at(rank)][at(rank)] : outputs[at(rank)];
  }

  void expect_results() const {
    for (int rank = 0; rank < ranks(); ++rank) {
      std::vector<Memory> contributions;
      contributions.reserve(given.size());
      for (const auto& of_rank : given) contributions.push_back(of_rank[at(rank)]);
      const Memory expected = oracle::ring_block(what, contributions, rank);
      ASSERT_EQ(oracle::first_difference(what.dtype, result(rank), expected), -1)
          << "rank " << rank;
      // The collective wrote nothing but the result.
      for (int block = 0; block < ranks(); ++block) {
        if (in_place && block == rank) continue;
        ASSERT_EQ(inputs[at(rank)][at(block)], given[at(rank)][at(block)]) << "an input changed";
      }
    }
  }

  Reduction what;
  bool in_place;
  std::vector<std::vector<Memory>> given;   // by rank, then by block
  std::vector<std::vector<Memory>> inputs;  // the same, as the ranks have them
  std::vector<Memory> outputs;              // by rank
};

// Returns uneven lengths, some of them 0.
std::vector<std::int64_t> random_lengths(int ranks, std::uint64_t below, Random& random) {
  std::vector<std::int64_t> lengths(at(ranks));
  for (std::int64_t& length : lengths) {
    length = random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random() % below);
  }
  return lengths;
}

class RingReduceScatterTest : public testing::TestWithParam<int> {};

TEST_P(RingReduceScatterTest, UnevenAndEmptyBlocksInAndOutOfPlace) {
  Random random(1);
  JobOfRanks job(GetParam());
  for (std::uint64_t round = 0; round < 60; ++round) {
    const std::int64_t segment = round % 3 == 0 ? 64 : round % 3 == 1 ? 192 : 100'000;
    std::vector<std::int64_t> lengths = random_lengths(job.size(), round < 30 ? 40 : 2000, random);
    // In round 0 no rank has a block, and in some later rounds only one rank has.
    if (round == 0) lengths.assign(lengths.size(), 0);
    if (round % 8 == 1) {
      std::fill(lengths.begin(), lengths.end(), 0);
      lengths[round % lengths.size()] = 777;
    }
    Blocks blocks({.dtype = DType::kF32}, job.size(), lengths, round % 2 == 0, random);
    Collectives collectives = blocks.start(job, segment);
    job.expect_done(collectives, round % 5);
    blocks.expect_results();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST_P(RingReduceScatterTest, UnderDelaysAndSynchronousSends) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    JobOfRanks job(GetParam(), {.seed = seed,
                                .max_delay = static_cast<int>(seed % 5),
                                .synchronous_sends = seed % 2 == 0});
    Blocks blocks({.dtype = DType::kF32, .op = ReduceOp::kAverage, .prescale = 0.3}, job.size(),
                  random_lengths(job.size(), 1500, random), seed % 3 == 0, random);
    Collectives collectives = blocks.start(job, 64 << (seed % 4));
    job.expect_done(collectives, seed);
    blocks.expect_results();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(RingReduceScatterTest, EveryDTypeOperationAndScale) {
  JobOfRanks job(GetParam(), {.seed = 5, .max_delay = 2});
  Random random(9);
  for (const base::DTypeRow& dtype : base::kDTypes) {
    for (const base::ReduceOpRow& op : base::kReduceOps) {
      if (!base::is_defined(dtype.dtype, op.op)) continue;
      for (const bool scaled : {false, true}) {
        if (scaled && !base::is_floating(dtype.dtype)) continue;
        const Reduction what{.dtype = dtype.dtype,
                             .op = op.op,
                             .prescale = scaled ? 0.7 : 1.0,
                             .postscale = scaled ? 1.9 : 1.0};
        Blocks blocks(what, job.size(), random_lengths(job.size(), 300, random), scaled, random);
        Collectives collectives = blocks.start(job, 128);
        job.expect_done(collectives, 3);
        blocks.expect_results();
        ASSERT_FALSE(HasFailure()) << dtype.name << " " << op.name;
      }
    }
  }
}

TEST_P(RingReduceScatterTest, CompressedItIsA16BitRingAndSendsHalfTheBytes) {
  Random random(4);
  for (const Compression compression : {Compression::kBf16, Compression::kF16}) {
    for (const base::ReduceOpRow& op : base::kReduceOps) {
      if (!base::is_defined(DType::kF32, op.op)) continue;
      JobOfRanks job(GetParam(), {.seed = 2, .max_delay = 1});
      const Reduction what{.op = op.op, .prescale = 0.6, .compression = compression};
      const std::vector<std::int64_t> lengths = random_lengths(job.size(), 3000, random);
      Blocks blocks(what, job.size(), lengths, op.op == ReduceOp::kMax, random);
      Collectives collectives = blocks.start(job, 256);
      job.expect_done(collectives, 6);
      blocks.expect_results();
      ASSERT_FALSE(HasFailure()) << base::name_of(compression) << " " << op.name;
      for (int rank = 0; rank < job.size(); ++rank) {
        std::int64_t others = 0;
        for (int block = 0; block < job.size(); ++block) {
          if (block != rank) others += 2 * lengths[at(block)];
        }
        EXPECT_EQ(job.watched(rank).bytes_sent(), others);
      }
    }
  }
}

// A rank sends everything but its own block, once: the least that a reduce-scatter can send.
TEST_P(RingReduceScatterTest, SendsTheLeastBytes) {
  Random random(3);
  JobOfRanks job(GetParam());
  const std::vector<std::int64_t> lengths = random_lengths(job.size(), 2000, random);
  Blocks blocks({.dtype = DType::kF64}, job.size(), lengths, false, random);
  Collectives collectives = blocks.start(job, 512);
  job.expect_done(collectives);
  for (int rank = 0; rank < job.size(); ++rank) {
    std::int64_t others = 0;
    for (int block = 0; block < job.size(); ++block) {
      if (block != rank) others += 8 * lengths[at(block)];
    }
    EXPECT_EQ(job.watched(rank).bytes_sent(), others);
  }
}

// An allreduce is a reduce-scatter and an allgather: the same bits for the chunks of a tensor.
TEST_P(RingReduceScatterTest, GivesTheBitsOfAnAllreduceOfItsChunks) {
  const int ranks = GetParam();
  Random random(8);
  for (const Compression compression : {Compression::kNone, Compression::kBf16}) {
    const Reduction what{.op = ReduceOp::kAverage, .compression = compression};
    const std::int64_t elements = 1234;
    std::vector<std::int64_t> lengths;
    lengths.reserve(at(ranks));
    for (int chunk = 0; chunk < ranks; ++chunk) {
      lengths.push_back(fusion::chunk_of_tensor(Bytes(4 * elements), ranks, chunk).length() / 4);
    }
    Blocks blocks(what, ranks, lengths, false, random);
    std::vector<Memory> tensors(at(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      Memory& tensor = tensors[at(rank)];
      for (const Memory& block : blocks.given[at(rank)]) {
        tensor.insert(tensor.end(), block.begin(), block.end());
      }
    }
    JobOfRanks job(ranks);
    Collectives scatters = blocks.start(job, 256);
    job.expect_done(scatters);
    Collectives allreduces;
    for (int rank = 0; rank < ranks; ++rank) {
      std::byte* memory = tensors[at(rank)].data();
      allreduces.push_back(ring_allreduce(
          job.transport(rank), job.workspace(rank),
          fusion::FusedView({TensorView{memory, memory, Elements(elements), DType::kF32}}, ranks),
          what, ranks, Bytes(128), 0));
    }
    job.expect_done(allreduces);
    Memory joined;
    for (int rank = 0; rank < ranks; ++rank) {
      joined.insert(joined.end(), blocks.result(rank).begin(), blocks.result(rank).end());
    }
    for (const Memory& tensor : tensors) ASSERT_EQ(tensor, joined);
  }
}

// This guards the tests above: with these numbers the order shows in the bits.
TEST(RingReduceScatter, AnotherOrderWouldShow) {
  Random random(5);
  std::vector<Memory> inputs;
  inputs.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    inputs.push_back(oracle::random_elements(DType::kF32, 500, random));
  }
  const Reduction what{.dtype = DType::kF32};
  EXPECT_NE(oracle::ring_block(what, inputs, 0), oracle::ring_block(what, inputs, 1));
}

TEST_P(RingReduceScatterTest, ACutLinkIsAnErrorOnBothRanksAndNothingHangs) {
  const int ranks = GetParam();
  if (ranks == 1) return;  // no links
  for (std::int64_t after = 0; after < 20; ++after) {
    const int a = static_cast<int>(after % ranks);
    const int b = (a + 1) % ranks;
    JobOfRanks job(ranks, {.seed = 1, .max_delay = 1, .cuts = {{a, b, after}}});
    {
      Random random(7);
      Blocks blocks({.dtype = DType::kF32}, ranks, std::vector<std::int64_t>(at(ranks), 1000),
                    after % 2 == 0, random);
      Collectives collectives = blocks.start(job, 64);
      const std::vector<Outcome> outcomes = job.run(collectives, at(after));
      for (const int rank : {a, b}) {
        const base::Status& status = outcomes[at(rank)].status;
        ASSERT_EQ(status.code(), base::Code::kTransport) << "after " << after;
        ASSERT_NE(status.message().find("rank " + std::to_string(a)), std::string::npos);
        ASSERT_NE(status.message().find("rank " + std::to_string(b)), std::string::npos);
      }
    }
    // The user's memory is gone; the engine's is parked as long as something may arrive there.
    EXPECT_GT(job.workspace(a).idle_bytes().value(), 0);
  }
}

TEST_P(RingReduceScatterTest, AMessageOfTheWrongLengthIsAnError) {
  if (GetParam() == 1) return;  // no messages
  JobOfRanks job(GetParam(), {.wrong_lengths = {{.from = 0, .to = 1, .message = 2}}});
  Random random(7);
  Blocks blocks({.dtype = DType::kF32}, job.size(), std::vector<std::int64_t>(at(job.size()), 999),
                true, random);
  Collectives collectives = blocks.start(job, 64);
  const std::vector<Outcome> outcomes = job.run(collectives);
  EXPECT_EQ(outcomes[1].status.code(), base::Code::kTransport);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingReduceScatterTest, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace ronde::collectives
