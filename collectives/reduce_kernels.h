// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a reduction, on contiguous memory: one table over dtype and operation. The
// algorithms move bytes and call these; nothing else in Ronde knows what a sum is.
//
// With x' = the prescaled contribution of a rank, in the order of the ranks a, b, c, ..., z:
//
//   first      a'                       a contribution sets out on its way
//   combine    (a' + b')                a hop
//   last_hop   ((a' + ... + y') + z') * factor
//   only       a' * factor              a job of one
//
// Rounding is part of the result. The arithmetic is f32 for f16, bf16 and f32, and f64 for f64.
// Each of the four kernels rounds what it stores to the dtype, so 16-bit types round at every hop;
// a prescaled 16-bit contribution is rounded before it is added, since it is the sum of a host that
// has one rank. Integers wrap around; their average divides the sum, truncating towards zero. A NaN
// in any contribution makes min and max NaN, and -0 is below +0. In a bool everything but 0 is
// true.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace ronde::collectives {

// What is reduced, and how.
struct Reduction {
  base::DType dtype = base::DType::kF32;
  base::ReduceOp op = base::ReduceOp::kSum;
  double prescale = 1.0;   // on each contribution
  double postscale = 1.0;  // on the result
};

// The numbers that the kernels multiply or divide with.
struct Scaling {
  double prescale = 1.0;
  double factor = 1.0;       // the average and the postscale, in one
  std::int64_t divisor = 1;  // of an average of integers
};

// For a job of `ranks` ranks. Scaling integers is refused before this: an invariant here.
[[nodiscard]] Scaling scaling_of(const Reduction& reduction, int ranks);

// Memory need not be aligned. `accumulator` and `own` must not overlap.
struct ReduceKernels {
  using InPlace = void (*)(std::byte* accumulator, std::int64_t elements, const Scaling& scaling);
  using WithOwn = void (*)(std::byte* accumulator, const std::byte* own, std::int64_t elements,
                           const Scaling& scaling);
  InPlace first = nullptr;
  WithOwn combine = nullptr;
  WithOwn last_hop = nullptr;
  InPlace only = nullptr;
};

// The kernels of an operation that is defined for the dtype (base::is_defined).
[[nodiscard]] const ReduceKernels& kernels_for(base::DType dtype, base::ReduceOp op);

}  // namespace ronde::collectives
