// SPDX-License-Identifier: Apache-2.0
// The algorithms between hosts: ring, direct and gather give the bits of the order rule, whatever
// is reduced, however it is cut into messages and in whatever order they arrive.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/messages/choose.h"
#include "collectives/messages/gather.h"
#include "collectives/messages/ring.h"
#include "collectives/transport/transport.h"
#include "test/unit/collectives/job_of_ranks.h"
#include "test/unit/collectives/ring_oracle.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;
using Memory = std::vector<std::byte>;
using Memories = std::vector<Memory>;
using Collectives = std::vector<std::unique_ptr<Collective>>;
using Random = std::mt19937_64;

// The circumstances of one run; none of them may show in the bits.
struct How {
  const Algorithm* algorithm = nullptr;
  bool in_place = false;
  std::int64_t segment = 256;
  std::uint64_t order = 0;
};

std::unique_ptr<Collective> start(const How& how, Transport& transport, Workspace& workspace,
                                  fusion::FusedView view, const Reduction& what, int ranks) {
  const base::Bytes segment(how.segment);
  if (how.algorithm->name == "gather") {  // with short windows, so that there are several
    return gather_allreduce(transport, workspace, std::move(view), what, ranks, 16, segment);
  }
  return how.algorithm->allreduce.make(transport, workspace, std::move(view), what, ranks, segment,
                                       16);
}

// By tensor, then by rank.
using Batch = std::vector<Memories>;

Batch random_batch(DType dtype, int ranks, Random& random) {
  Batch batch(1 + random() % 3);
  for (Memories& tensor : batch) {
    const auto elements = static_cast<std::int64_t>(random() % 4 == 0   ? random() % 3
                                                    : random() % 2 == 0 ? random() % 90
                                                                        : random() % 1500);
    for (int rank = 0; rank < ranks; ++rank) {
      tensor.push_back(oracle::random_elements(dtype, elements, random));
    }
  }
  return batch;
}

// Returns the outputs, by tensor and rank, and fails if a request points at them.
Batch run(JobOfRanks& job, const How& how, const Reduction& what, const Batch& batch) {
  Batch inputs = batch;
  Batch outputs = batch;
  Collectives collectives;
  for (int rank = 0; rank < job.size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    std::vector<base::TensorView> tensors;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Memory& output = outputs[i][at];
      if (!how.in_place) std::fill(output.begin(), output.end(), std::byte{0x5A});
      tensors.push_back({how.in_place ? output.data() : inputs[i][at].data(), output.data(),
                         base::Elements(std::ssize(output) / base::size_of(what.dtype)),
                         what.dtype});
      job.watched(rank).keep_out_of(output);
      job.watched(rank).keep_out_of(inputs[i][at]);
    }
    collectives.push_back(start(how, job.transport(rank), job.workspace(rank),
                                fusion::FusedView(tensors, job.size()), what, job.size()));
  }
  job.expect_done(collectives, how.order);
  EXPECT_EQ(inputs, batch) << "an input has changed";
  return outputs;
}

void expect_rule(JobOfRanks& job, const How& how, const Reduction& what, const Batch& batch) {
  const Batch outputs = run(job, how, what, batch);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Memory expected = oracle::ring_tensor(what, batch[i]);
    for (const Memory& result : outputs[i]) {
      ASSERT_EQ(oracle::first_difference(what.dtype, result, expected), -1)
          << "tensor " << i << " of " << result.size() << " bytes";
    }
  }
}

using Param = std::tuple<const Algorithm*, int>;

std::string text(const testing::TestParamInfo<Param>& info) {
  return std::string(std::get<0>(info.param)->name) + std::to_string(std::get<1>(info.param));
}

std::vector<const Algorithm*> every_algorithm() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& row : algorithms()) all.push_back(&row);
  return all;
}

class BetweenHostsTest : public testing::TestWithParam<Param> {};

TEST_P(BetweenHostsTest, EveryDTypeAndOperationFollowsTheRule) {
  const auto [algorithm, ranks] = GetParam();
  Random random(static_cast<std::uint64_t>(ranks));
  for (const base::DTypeRow& dtype : base::kDTypes) {
    for (const base::ReduceOpRow& op : base::kReduceOps) {
      if (!base::is_defined(dtype.dtype, op.op)) continue;
      Reduction what{.dtype = dtype.dtype, .op = op.op};
      if (base::is_floating(dtype.dtype) && random() % 2 == 0) what.prescale = 0.3;
      if (base::is_floating(dtype.dtype) && random() % 2 == 0) what.postscale = 1.7;
      JobOfRanks job(ranks, {.seed = random(), .max_delay = 2});
      const How how{algorithm, random() % 2 == 0, std::int64_t{64} << (random() % 8), random()};
      expect_rule(job, how, what, random_batch(dtype.dtype, ranks, random));
      ASSERT_FALSE(HasFailure()) << dtype.name << " " << op.name;
    }
  }
}

TEST_P(BetweenHostsTest, FusedTensorsUnderDelaysAndSynchronousSends) {
  const auto [algorithm, ranks] = GetParam();
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    JobOfRanks job(ranks, {.seed = seed,
                           .max_delay = static_cast<int>(seed % 5),
                           .synchronous_sends = seed % 2 == 0});
    Reduction what{.op = seed % 3 == 0 ? ReduceOp::kAverage : ReduceOp::kSum};
    if (seed % 4 == 1) what.compression = base::Compression::kBf16;
    if (seed % 4 == 2) what.compression = base::Compression::kF16;
    // Several allreduces follow each other with the same tags, as the blocks of a long vector do.
    for (int round = 0; round < 3; ++round) {
      const How how{algorithm, random() % 2 == 0, std::int64_t{64} << (random() % 8), random()};
      expect_rule(job, how, what, random_batch(DType::kF32, ranks, random));
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", round " << round;
    }
  }
}

// An average divides by the given number of ranks, since the inputs are sums of hosts already.
TEST_P(BetweenHostsTest, AnAverageDividesByTheGivenNumber) {
  const auto [algorithm, ranks] = GetParam();
  constexpr int kRanksOfJob = 24;
  JobOfRanks job(ranks);
  std::vector<float> values(static_cast<std::size_t>(ranks), 3.0F);
  Collectives collectives;
  for (int rank = 0; rank < ranks; ++rank) {
    auto* const memory = reinterpret_cast<std::byte*>(&values[static_cast<std::size_t>(rank)]);
    const base::TensorView tensor{memory, memory, base::Elements(1), DType::kF32};
    collectives.push_back(start({.algorithm = algorithm}, job.transport(rank), job.workspace(rank),
                                fusion::FusedView({tensor}, ranks), {.op = ReduceOp::kAverage},
                                kRanksOfJob));
  }
  job.expect_done(collectives);
  for (const float value : values) {
    EXPECT_EQ(value, 3.0F * static_cast<float>(ranks) * static_cast<float>(1.0 / kRanksOfJob));
  }
}

TEST_P(BetweenHostsTest, ACutLinkIsAnErrorAndNothingHangs) {
  const auto [algorithm, ranks] = GetParam();
  for (std::int64_t after = 0; after < 12; ++after) {
    JobOfRanks job(ranks, {.seed = 1, .max_delay = 1, .cuts = {{0, 1, after}}});
    Batch inputs{Memories(static_cast<std::size_t>(ranks), Memory(64 * 100))};
    Collectives collectives;
    for (int rank = 0; rank < ranks; ++rank) {
      Memory& memory = inputs[0][static_cast<std::size_t>(rank)];
      const base::TensorView tensor{memory.data(), memory.data(), base::Elements(1600),
                                    DType::kF32};
      collectives.push_back(start({.algorithm = algorithm, .segment = 128}, job.transport(rank),
                                  job.workspace(rank), fusion::FusedView({tensor}, ranks), {},
                                  ranks));
    }
    const std::vector<Outcome> outcomes = job.run(collectives, 7);
    for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
      ASSERT_EQ(outcomes[rank].status.code(), base::Code::kTransport) << "after " << after;
    }
  }
}

// What is in flight stays bounded, however many ranks there are and however long the vector is.
TEST_P(BetweenHostsTest, MemoryIsBounded) {
  const auto [algorithm, ranks] = GetParam();
  Random random(1);
  Batch batch(1);
  for (int rank = 0; rank < ranks; ++rank) {
    batch[0].push_back(oracle::random_elements(DType::kF32, 300'000, random));
  }
  JobOfRanks job(ranks);
  expect_rule(job, {.algorithm = algorithm, .segment = 8192}, {}, batch);
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_LE(job.workspace(rank).idle_bytes().value(), (1 + ranks) * 4 * 8192 * 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, BetweenHostsTest,
                         testing::Combine(testing::ValuesIn(every_algorithm()),
                                          testing::Values(2, 3, 4, 5, 8)),
                         text);

// In a ring of four, ranks 0 and 2 send each other no messages; in direct all ranks do.
TEST(ReduceScatterBetween, TakesTheRingOrDirect) {
  for (const std::string_view name : {"ring", "direct", "gather"}) {
    JobOfRanks job(4, {.cuts = {{0, 2, 0}}});
    Memories inputs(4, Memory(1024));
    Collectives collectives;
    for (int rank = 0; rank < 4; ++rank) {
      std::byte* at = inputs[static_cast<std::size_t>(rank)].data();
      std::vector<base::TensorView> blocks;
      for (int block = 0; block < 4; ++block, at += 256) {
        blocks.push_back({at, block == rank ? at : nullptr, base::Elements(64), DType::kF32});
      }
      collectives.push_back(algorithm_of(name)->reduce_scatter.make(
          job.transport(rank), job.workspace(rank),
          fusion::FusedView::of_chunks(DType::kF32, blocks), {}, 4, base::Bytes(4096), 0));
    }
    const std::vector<Outcome> outcomes = job.run(collectives, 1);
    EXPECT_EQ(outcomes[0].done, name == "ring") << name;
    EXPECT_EQ(outcomes[2].done, name == "ring") << name;
  }
}

// Two groups of one job, each with a ring of its own and an order of its own.
TEST(TransportOfSome, RunsAlgorithmsAmongTheMembersAlone) {
  JobOfRanks job(5);
  const std::vector<std::vector<int>> groups{{3, 0, 4}, {2, 1}};
  std::vector<std::unique_ptr<Transport>> transports(5);
  std::vector<float> values{1, 2, 4, 8, 16};
  Collectives collectives(5);
  for (const std::vector<int>& members : groups) {
    for (const int rank : members) {
      const auto at = static_cast<std::size_t>(rank);
      transports[at] = std::make_unique<Transport>(job.transport(rank), members);
      EXPECT_EQ(members[static_cast<std::size_t>(transports[at]->rank())], rank);
      auto* const memory = reinterpret_cast<std::byte*>(&values[at]);
      const base::TensorView tensor{memory, memory, base::Elements(1), DType::kF32};
      const int size = transports[at]->size();
      collectives[at] =
          ring_allreduce(*transports[at], job.workspace(rank), fusion::FusedView({tensor}, size),
                         {}, size, base::Bytes(64), 0);
    }
  }
  job.expect_done(collectives, 3);
  EXPECT_EQ(values, (std::vector<float>{25, 6, 6, 25, 25}));
}

}  // namespace
}  // namespace ronde::collectives
