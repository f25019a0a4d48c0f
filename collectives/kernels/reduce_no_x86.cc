// SPDX-License-Identifier: Apache-2.0
// Which kernels this processor can run, where that is not x86-64: what the compiler makes of the
// plain ones. Its twin is kernels/reduce_x86.cc.
#include "collectives/kernels/table.h"

namespace ronde::collectives {

const KernelTable* kernel_table_of(InstructionSet set) {
  return set == InstructionSet::kPlain ? &kPlainKernels : nullptr;
}

}  // namespace ronde::collectives
