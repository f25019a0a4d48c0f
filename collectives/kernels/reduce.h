// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a reduction, on contiguous memory: one table over dtype and operation. The
// algorithms move bytes and call these; nothing else in Ronde knows what a sum is.
//
// An operation does this, element by element:
//
//   sum, product   Floating point: in f32 for f16, bf16 and f32, in f64 for f64, in the order that
//                  the order rule gives; f16 and bf16 are rounded to nearest, ties to even, and
//                  overflow to infinity. Integers wrap around.
//   average        Floating point: the sum times a factor, which is postscale / ranks (or another
//                  divisor), computed in f64 and rounded to the type of the sum. Integers of 32 and
//                  64 bits: the sum, wrapped around, divided by the number of ranks, truncating
//                  towards zero; narrower ones have no average.
//   min, max       -0 is below +0. A NaN in any contribution makes the result a NaN.
//   band bor bxor  Bitwise "and", "or" and "exclusive or" of integers; not defined for floating
//                  point.
//   bool           Every byte but 0 is true, and a result is 0 or 1. min and band are "all", max
//                  and bor are "any", bxor is "an odd number"; it has no sum, product or average.
//
// A NaN stays a NaN; its payload and sign are not promised. Subnormals are kept. A prescale
// multiplies each contribution before, and a postscale the result after, the operation, in the type
// of the sum; integers and bools refuse both. Nothing else is rounded: the same bits come out of
// every instruction set.
//
// With x' = the prescaled contribution of a rank, in the order of the ranks a, b, c, ..., z:
//
//   of_host    (a' + b' + ... + z') * factor    the ranks of a host
//   first      a'                               a contribution begins its walk round a ring
//   combine    (a' + b')                        a hop
//   last_hop   ((a' + ... + y') + z') * factor
//   only       a' * factor                      a job of one rank
//
// Each kernel rounds what it stores to the dtype, and of_host nothing before that. So 16-bit types
// round at every hop; there a prescaled contribution is rounded before it is added, since it is the
// sum of a host that has one rank.
#pragma once

#include <vector>

#include "base/dtype.h"
#include "collectives/kernels/types.h"

namespace ronde::collectives {

// The dtype, the operation and the scaling of a reduction.
struct Reduction {
  base::DType dtype = base::DType::kF32;
  base::ReduceOp op = base::ReduceOp::kSum;
  double prescale = 1.0;   // on each contribution
  double postscale = 1.0;  // on the result
  // For f32 only: contributions and the result are rounded to 16 bits, as they travel.
  base::Compression compression = base::Compression::kNone;
  // Where contributions differ in their prescales: that of each rank, in place of `prescale`.
  std::vector<double> prescales{};
  double divisor = 0.0;  // of an average; 0: the number of ranks
};

// The same reduction with the prescale of one rank, which scales its contribution by itself.
[[nodiscard]] Reduction of_rank(Reduction reduction, int rank);

// Returns the numbers that the kernels need in a job of `ranks` ranks, but for `prescales`, which
// are the caller's to keep. Callers have refused to
// scale integers before; here that is an invariant.
[[nodiscard]] Scaling scaling_of(const Reduction& reduction, int ranks);

// Returns the best one that this processor and its operating system offer.
[[nodiscard]] InstructionSet best_instruction_set();

// Returns the kernels of an operation that is defined for the dtype (base::is_defined), for the
// best instruction set. Thread safety: any thread; the tables are constant and live for ever.
[[nodiscard]] const ReduceKernels& kernels_for(base::DType dtype, base::ReduceOp op);

// Returns the kernels for a given instruction set, not above the best: every choice gives the same
// bits.
[[nodiscard]] const ReduceKernels& kernels_for(InstructionSet set, base::DType dtype,
                                               base::ReduceOp op);

}  // namespace ronde::collectives
