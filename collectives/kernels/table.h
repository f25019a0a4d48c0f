// SPDX-License-Identifier: Apache-2.0
// The table of all kernels of one instruction set. Each set's source file (reduce_<set>.cc)
// compiles the same templates with its own flags and fills one table; nothing else of those files
// is visible.
#pragma once

#include <array>

#include "base/dtype.h"
#include "collectives/kernels/types.h"

namespace ronde::collectives {

using KernelRow = std::array<ReduceKernels, base::kReduceOps.size()>;  // by ReduceOp

struct KernelTable {
  std::array<KernelRow, base::kDTypes.size()> reduce;  // by DType; null where undefined
  CopyKernels copy;
};

extern const KernelTable kPlainKernels;
// These two exist on x86-64 alone.
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;

// Returns the table of a set, or nullptr when this build, the processor or its operating system
// lacks it. Thread safety: any thread; tables are constant and live for ever.
[[nodiscard]] const KernelTable* kernel_table_of(InstructionSet set);

}  // namespace ronde::collectives
