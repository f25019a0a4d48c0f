// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/reduce.h"

#include "base/check.h"
#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

InstructionSet find_best() {
  for (const InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2}) {
    if (kernel_table_of(set) != nullptr) return set;
  }
  return InstructionSet::kPlain;
}

}  // namespace

Scaling scaling_of(const Reduction& reduction, int ranks) {
  const bool average = reduction.op == base::ReduceOp::kAverage;
  const double parts = reduction.divisor != 0.0 ? reduction.divisor : ranks;
  if (!base::is_floating(reduction.dtype)) {
    base::check(reduction.prescale == 1.0 && reduction.postscale == 1.0,
                "integers cannot be scaled");
    return {.prescale = 1.0,
            .factor = 1.0,
            .divisor = average ? static_cast<std::int64_t>(parts) : 1,
            .prescales = nullptr};
  }
  // Factors are rounded here as well as in the kernels, so that the kernels compare with 1 the
  // number that they use.
  const bool f64 = reduction.dtype == base::DType::kF64;
  const auto rounded = [f64](double x) { return f64 ? x : double{static_cast<float>(x)}; };
  return {.prescale = rounded(reduction.prescale),
          .factor = rounded(average ? reduction.postscale / parts : reduction.postscale),
          .divisor = 1,
          .prescales = nullptr};
}

Reduction of_rank(Reduction reduction, int rank) {
  if (reduction.prescales.empty()) return reduction;
  reduction.prescale = reduction.prescales.at(static_cast<std::size_t>(rank));
  reduction.prescales.clear();
  return reduction;
}

InstructionSet best_instruction_set() {
  static const InstructionSet kBest = find_best();
  return kBest;
}

const ReduceKernels& kernels_for(base::DType dtype, base::ReduceOp op) {
  return kernels_for(best_instruction_set(), dtype, op);
}

const ReduceKernels& kernels_for(InstructionSet set, base::DType dtype, base::ReduceOp op) {
  base::check(base::is_defined(dtype, op), "no kernel: the operation is not defined for the dtype");
  const KernelTable* table = kernel_table_of(set);
  base::check(table != nullptr, "no kernel: the processor lacks the instruction set");
  return table->reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
}

}  // namespace ronde::collectives
