// SPDX-License-Identifier: Apache-2.0
// How far a sum may be from the sum of real numbers, which is taken in long double. With p
// contributions, u the unit roundoff of the type of the sum (2^-24 for f32, 2^-53 for f64) and S
// the sum of the magnitudes:
//
//   sum      (p - 1) * u * S, to first order; 16-bit types: and half a last place of the result
//   average  the same divided by p, and 2u of the result, for the factor and the product
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/kernels/reduce.h"
#include "test/unit/collectives/kernels/support.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;
using oracle::Bytes;
using Real = long double;

constexpr std::int64_t kElements = 1000;

// Returns half a last place of a number of this size, in a 16-bit type.
Real half_a_place(DType dtype, Real value) {
  const int mantissa = dtype == DType::kF16 ? 10 : 7;
  const int smallest = dtype == DType::kF16 ? -14 : -126;
  const int exponent = value == 0 ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(Real{0.5}, exponent - mantissa);
}

struct Exact {
  Real sum = 0;
  Real magnitudes = 0;
};

class AccuracyTest : public testing::TestWithParam<DType> {
 protected:
  // Returns numbers of both signs and of sizes 1e-3 to 1, whose sums cancel and do not overflow.
  static std::vector<Bytes> contributions(std::size_t ranks) {
    std::mt19937_64 random(ranks);
    std::uniform_real_distribution<double> exponent(-3.0, 0.0);
    std::vector<Bytes> inputs(
        ranks, Bytes(static_cast<std::size_t>(kElements * base::size_of(GetParam()))));
    for (Bytes& input : inputs) {
      for (std::int64_t i = 0; i < kElements; ++i) {
        const double size = std::pow(10.0, exponent(random));
        oracle::store(GetParam(), input.data(), i,
                      oracle::encode(GetParam(), random() % 2 == 0 ? size : -size));
      }
    }
    return inputs;
  }

  static Bytes reduce(InstructionSet set, ReduceOp op, const std::vector<Bytes>& inputs) {
    std::vector<const std::byte*> sources;
    for (const Bytes& input : inputs) sources.push_back(input.data());
    Bytes result(inputs[0].size());
    std::byte* destination = result.data();
    kernels_for(set, GetParam(), op)
        .of_host(sources, {&destination, 1}, kElements,
                 scaling_of({.dtype = GetParam(), .op = op}, static_cast<int>(inputs.size())));
    return result;
  }

  static Exact exact(const std::vector<Bytes>& inputs, std::int64_t i) {
    Exact exact;
    for (const Bytes& input : inputs) {
      const Real value = oracle::decode(GetParam(), oracle::load(GetParam(), input.data(), i));
      exact.sum += value;
      exact.magnitudes += std::fabs(value);
    }
    return exact;
  }

  static Real bound(ReduceOp op, const Exact& exact, Real result, std::size_t ranks) {
    const Real unit = std::ldexp(Real{1}, GetParam() == DType::kF64 ? -53 : -24);
    const auto p = static_cast<Real>(ranks);
    // The factor covers the second order, and the error of the yardstick.
    const Real tiny = 1 + std::ldexp(Real{1}, -9);
    Real error = (p - 1) * unit * exact.magnitudes * tiny;
    Real value = exact.sum;
    if (op == ReduceOp::kAverage) {
      value /= p;
      error = error / p + 2 * unit * std::fabs(value) * tiny;
    }
    if (base::size_of(GetParam()) == 2) {
      const Real largest = std::max(std::fabs(value) + error, std::fabs(result));
      error += half_a_place(GetParam(), largest);
    }
    return error;
  }
};

TEST_P(AccuracyTest, StaysWithinTheBound) {
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 8U, 64U}) {
    const std::vector<Bytes> inputs = contributions(ranks);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      for (const InstructionSet set : kernel_test::available_sets()) {
        const Bytes result = reduce(set, op, inputs);
        for (std::int64_t i = 0; i < kElements; ++i) {
          const Real value = oracle::decode(GetParam(), oracle::load(GetParam(), result.data(), i));
          const Exact wanted = exact(inputs, i);
          const Real real =
              op == ReduceOp::kAverage ? wanted.sum / static_cast<Real>(ranks) : wanted.sum;
          ASSERT_LE(std::fabs(value - real), bound(op, wanted, value, ranks))
              << kernel_test::name_of(set) << ' ' << base::name_of(op) << " of " << ranks
              << ", element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AccuracyTest,
                         testing::Values(DType::kF16, DType::kBf16, DType::kF32, DType::kF64),
                         [](const auto& one) { return std::string(base::name_of(one.param)); });

}  // namespace
}  // namespace ronde::collectives
