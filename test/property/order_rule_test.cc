// SPDX-License-Identifier: Apache-2.0
// The promise that training can be repeated, for the ring, where every rank counts as a host: the
// bits of a result are a function of the tensor and of the number of ranks, never of what it was
// fused with, the size of segments, timing, the order of arrival, or the floating-point mode that
// the user has set. (in_host_order_rule_test.cc does so for one host, through the whole runtime.)
#include <gtest/gtest.h>

#include <cfenv>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/floating_point_mode.h"
#include "collectives/messages/ring.h"
#include "test/property/random_magnitudes.h"
#include "test/unit/collectives/job_of_ranks.h"
#include "test/unit/collectives/ring_oracle.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::DType;
using base::Elements;
using base::ReduceOp;
using base::TensorView;
using Memory = std::vector<std::byte>;
using Random = std::mt19937_64;

// A tensor of all ranks: inputs[r] is rank r's.
using Tensor = std::vector<Memory>;

Tensor random_tensor(DType dtype, int ranks, std::int64_t elements, Random& random) {
  Tensor tensor;
  for (int rank = 0; rank < ranks; ++rank) {
    tensor.push_back(oracle::random_magnitudes(dtype, elements, random));
  }
  return tensor;
}

// The circumstances of a reduction, which must not change its bits.
struct Circumstances {
  FaultPlan faults{};
  std::int64_t segment = 64;
  std::uint64_t order = 0;
  bool in_place = false;
};

Circumstances random_circumstances(Random& random) {
  return {.faults = {.seed = random(),
                     .max_delay = static_cast<int>(random() % 4),
                     .synchronous_sends = random() % 2 == 0},
          .segment = std::int64_t{64} << (random() % 8),
          .order = random(),
          .in_place = random() % 2 == 0};
}

// Allreduces `tensors`, fused into one batch, and returns the results of every rank.
std::vector<Tensor> allreduce(const Reduction& what, const std::vector<Tensor>& tensors,
                              const Circumstances& how) {
  const int ranks = static_cast<int>(tensors[0].size());
  JobOfRanks job(ranks, how.faults);
  std::vector<Tensor> outputs = tensors;
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Memory& output = outputs[i][at(rank)];
      const Memory& input = how.in_place ? output : tensors[i][at(rank)];
      views.push_back({input.data(), output.data(),
                       Elements(std::ssize(output) / base::size_of(what.dtype)), what.dtype});
    }
    collectives.push_back(ring_allreduce(job.transport(rank), job.workspace(rank),
                                         fusion::FusedView(views, ranks), what, ranks,
                                         Bytes(how.segment), 0));
  }
  job.expect_done(collectives, how.order);
  return outputs;
}

void expect_bits(DType dtype, const Tensor& actual, const Memory& expected) {
  for (const Memory& of_rank : actual) {
    // Bytes are compared and not values, since -0 is not +0; there is no NaN here.
    ASSERT_EQ(of_rank, expected) << "element "
                                 << oracle::first_difference(dtype, of_rank, expected);
  }
}

struct OrderCase {
  DType dtype;
  int ranks;
};

class OrderRuleTest : public ::testing::TestWithParam<OrderCase> {};

TEST_P(OrderRuleTest, BitsDependOnTheTensorAndTheRanksAlone) {
  const auto [dtype, ranks] = GetParam();
  Random random(static_cast<std::uint64_t>(ranks) * 100 + static_cast<std::uint64_t>(dtype));
  for (int round = 0; round < 12; ++round) {
    Reduction what{.dtype = dtype, .op = round % 3 == 0 ? ReduceOp::kAverage : ReduceOp::kSum};
    if (round % 2 == 1) what.prescale = 0.3;
    if (round % 4 == 2) what.postscale = 1.7;
    const auto elements = static_cast<std::int64_t>(1 + random() % 1500);
    const Tensor subject = random_tensor(dtype, ranks, elements, random);
    if (dtype == DType::kF32 && round % 3 == 1) {
      what.compression = round % 2 == 0 ? base::Compression::kF16 : base::Compression::kBf16;
    }
    const Memory expected = oracle::ring_tensor(what, subject);
    for (int way = 0; way < 6; ++way) {
      // The tensor is at a random place of a batch of others.
      std::vector<Tensor> batch;
      const std::size_t place = way == 0 ? 0 : random() % 4;
      for (std::size_t i = 0; i < place; ++i) {
        batch.push_back(
            random_tensor(dtype, ranks, static_cast<std::int64_t>(random() % 500), random));
      }
      batch.push_back(subject);
      if (way % 2 == 1) batch.push_back(random_tensor(dtype, ranks, 77, random));
      const std::vector<Tensor> results = allreduce(what, batch, random_circumstances(random));
      expect_bits(dtype, results[place], expected);
      ASSERT_FALSE(HasFailure()) << "round " << round << ", way " << way;
    }
  }
}

// This guards the test above: with these numbers the order shows in the bits.
TEST_P(OrderRuleTest, AnotherOrderWouldShow) {
  const auto [dtype, ranks] = GetParam();
  Random random(5);
  const Reduction what{.dtype = dtype, .op = ReduceOp::kSum};
  Tensor tensor = random_tensor(dtype, ranks, 1000, random);
  const Memory before = oracle::allreduce(what, tensor);
  std::swap(tensor[0], tensor[2]);
  EXPECT_NE(oracle::allreduce(what, tensor), before);
}

#if defined(__SSE2__)
TEST_P(OrderRuleTest, TheUsersFloatingPointModeChangesNoBit) {
  const auto [dtype, ranks] = GetParam();
  Random random(6);
  const Reduction what{.dtype = dtype, .op = ReduceOp::kAverage, .prescale = 0.7};
  const Tensor tensor = random_tensor(dtype, ranks, 1000, random);
  const Memory expected = oracle::allreduce(what, tensor);
  const Circumstances how{.segment = 256};

  const unsigned users = _mm_getcsr();
  _mm_setcsr((users | 0x8040U) & ~0x6000U);
  std::fesetround(FE_DOWNWARD);
  const std::vector<Tensor> unprotected = allreduce(what, {tensor}, how);
  const unsigned before = _mm_getcsr();
  std::vector<Tensor> protected_results;
  {
    const ScopedFloatingPointMode mode;
    protected_results = allreduce(what, {tensor}, how);
  }
  const unsigned after = _mm_getcsr();
  std::fesetround(FE_TONEAREST);
  _mm_setcsr(users);

  EXPECT_EQ(before, after) << "the user's mode is restored";
  expect_bits(dtype, protected_results[0], expected);
  EXPECT_NE(unprotected[0][0], expected) << "this mode does harm where nobody guards against it";
}
#endif

std::vector<OrderCase> all_params() {
  std::vector<OrderCase> params;
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32, DType::kF64}) {
    for (const int ranks : {3, 4, 5, 8}) params.push_back({dtype, ranks});
  }
  return params;
}

INSTANTIATE_TEST_SUITE_P(All, OrderRuleTest, ::testing::ValuesIn(all_params()),
                         [](const auto& one) {
                           return std::string(base::name_of(one.param.dtype)) + "_" +
                                  std::to_string(one.param.ranks);
                         });

}  // namespace
}  // namespace ronde::collectives
