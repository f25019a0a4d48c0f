// SPDX-License-Identifier: Apache-2.0
// The choice of kernels where the processor is not x86-64: it can run the plain ones alone. Its
// twin is kernels/reduce_x86.cc.
#include "collectives/kernels/table.h"

namespace ronde::collectives {

const KernelTable* kernel_table_of(InstructionSet set) {
  return set == InstructionSet::kPlain ? &kPlainKernels : nullptr;
}

}  // namespace ronde::collectives
