// SPDX-License-Identifier: Apache-2.0
// Compressed allreduce: f32 tensors of which 16 bits per element travel.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collectives/messages/ring.h"
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
using Tensor = std::vector<Memory>;  // by rank

Tensor random_tensor(int ranks, std::int64_t elements, Random& random) {
  Tensor tensor;
  for (int rank = 0; rank < ranks; ++rank) {
    tensor.push_back(oracle::random_elements(DType::kF32, elements, random));
  }
  return tensor;
}

// Allreduces `tensors` as one batch and returns the results of every rank.
std::vector<Tensor> allreduce(JobOfRanks& job, const Reduction& what,
                              const std::vector<Tensor>& tensors, bool in_place,
                              std::int64_t segment, std::uint64_t order) {
  std::vector<Tensor> outputs = tensors;
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int rank = 0; rank < job.size(); ++rank) {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Memory& output = outputs[i][at(rank)];
      const Memory& input = in_place ? output : tensors[i][at(rank)];
      views.push_back({input.data(), output.data(),
                       Elements(std::ssize(output) / base::size_of(what.dtype)), what.dtype});
      job.watched(rank).keep_out_of(input);
      job.watched(rank).keep_out_of(output);
    }
    collectives.push_back(ring_allreduce(job.transport(rank), job.workspace(rank),
                                         fusion::FusedView(views, job.size()), what, job.size(),
                                         Bytes(segment), 0));
  }
  job.expect_done(collectives, order);
  return outputs;
}

class RingCompressionTest : public testing::TestWithParam<int> {};

TEST_P(RingCompressionTest, BitsAreThoseOfTheRuleFusedOrNot) {
  const int ranks = GetParam();
  Random random(static_cast<std::uint64_t>(ranks));
  for (int round = 0; round < 40; ++round) {
    Reduction what{.op = base::kReduceOps[at(round % 5)].op,
                   .compression = round % 2 == 0 ? Compression::kBf16 : Compression::kF16};
    if (round % 3 == 1) what.prescale = 0.3;
    if (round % 4 == 2) what.postscale = 1.7;
    const Tensor subject = random_tensor(
        ranks, static_cast<std::int64_t>(random() % (round < 10 ? 70 : 2000)), random);
    const Memory expected = oracle::ring_tensor(what, subject);
    for (int way = 0; way < 4; ++way) {
      // The tensor is reduced alone, and then among others.
      std::vector<Tensor> batch;
      const std::size_t place = way == 0 ? 0 : random() % 3;
      for (std::size_t i = 0; i < place; ++i) {
        batch.push_back(random_tensor(ranks, static_cast<std::int64_t>(random() % 300), random));
      }
      batch.push_back(subject);
      if (way > 1) batch.push_back(random_tensor(ranks, 77, random));
      JobOfRanks job(ranks,
                     {.seed = random(), .max_delay = way, .synchronous_sends = random() % 2 == 0});
      const std::vector<Tensor> results =
          allreduce(job, what, batch, way % 2 == 0, std::int64_t{32} << (random() % 8), random());
      for (const Memory& result : results[place]) ASSERT_EQ(result, expected);
      ASSERT_FALSE(HasFailure()) << "round " << round << ", way " << way;
    }
  }
}

// Segments are longer than the block in which inputs are narrowed.
TEST_P(RingCompressionTest, LongSegmentsOfSeveralTensors) {
  const int ranks = GetParam();
  Random random(6);
  const Reduction what{.op = ReduceOp::kAverage, .compression = Compression::kF16};
  const std::vector<Tensor> batch{random_tensor(ranks, 5000 * ranks + 3, random),
                                  random_tensor(ranks, 2047 * ranks, random),
                                  random_tensor(ranks, 9000 * ranks + 17, random)};
  JobOfRanks job(ranks);
  const std::vector<Tensor> results = allreduce(job, what, batch, false, 100'000, 2);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Memory expected = oracle::ring_tensor(what, batch[i]);
    for (const Memory& result : results[i]) ASSERT_EQ(result, expected) << "tensor " << i;
  }
}

TEST_P(RingCompressionTest, HalfTheBytesTravelInMessagesOfTheSameSize) {
  const int ranks = GetParam();
  Random random(3);
  const std::int64_t lines = 40;  // of each chunk
  const std::vector<Tensor> tensors{random_tensor(ranks, lines * ranks * 16, random)};
  for (const std::int64_t segment : {64, 256}) {
    for (const Compression compression :
         {Compression::kNone, Compression::kBf16, Compression::kF16}) {
      JobOfRanks job(ranks);
      allreduce(job, {.compression = compression}, tensors, true, segment, 0);
      const std::int64_t chunk = lines * (compression == Compression::kNone ? 64 : 32);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(job.watched(rank).bytes_sent(), 2 * (ranks - 1) * chunk);
        EXPECT_EQ(job.watched(rank).messages(), 2 * (ranks - 1) * (chunk / segment));
      }
    }
  }
}

// A job of one rank rounds as well, so that the form of a result does not depend on the ranks.
TEST_P(RingCompressionTest, WhatDoesNotFit16BitsIsRounded) {
  const int ranks = GetParam();
  const auto one = [&](float value, Compression compression) {
    Memory memory(4);
    oracle::store(DType::kF32, memory.data(), 0, std::bit_cast<std::uint32_t>(value));
    JobOfRanks job(ranks);
    const auto results = allreduce(job, {.op = ReduceOp::kMax, .compression = compression},
                                   {Tensor(at(ranks), memory)}, true, 64, 0);
    return std::bit_cast<float>(
        static_cast<std::uint32_t>(oracle::load(DType::kF32, results[0].back().data(), 0)));
  };
  EXPECT_EQ(one(1.0F + 0x1p-20F, Compression::kBf16), 1.0F);
  EXPECT_EQ(one(1.0F + 0x1p-20F, Compression::kF16), 1.0F);
  EXPECT_EQ(one(1.0F + 0x1p-20F, Compression::kNone), 1.0F + 0x1p-20F);
  EXPECT_EQ(one(-0.0F, Compression::kBf16), 0.0F);
  EXPECT_TRUE(std::signbit(one(-0.0F, Compression::kBf16)));
  EXPECT_EQ(one(1e6F, Compression::kF16), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(one(std::numeric_limits<float>::quiet_NaN(), Compression::kF16)));
  EXPECT_TRUE(std::isnan(one(std::numeric_limits<float>::quiet_NaN(), Compression::kBf16)));
}

// This guards the tests above: compression shows in the bits, and so does the order.
TEST(RingCompression, WouldShow) {
  Random random(5);
  Tensor tensor = random_tensor(3, 1000, random);
  const Reduction what{.compression = Compression::kBf16};
  const Memory before = oracle::ring_tensor(what, tensor);
  EXPECT_NE(oracle::ring_tensor({}, tensor), before);
  std::swap(tensor[0], tensor[2]);
  EXPECT_NE(oracle::ring_tensor(what, tensor), before);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingCompressionTest, testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace ronde::collectives
