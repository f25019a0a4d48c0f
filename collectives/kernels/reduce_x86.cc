// SPDX-License-Identifier: Apache-2.0
// The choice of kernels that this x86-64 processor can run. Its twin for other processors is
// kernels/reduce_no_x86.cc.
#include <cpuid.h>

#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

// The levels of x86-64: AVX2 belongs to 3, AVX-512 to 4. The build may allow no more than a lesser
// one.
constexpr int kMostLevel = RONDE_X86_LEVEL;

// __builtin_cpu_supports asks the processor and the operating system, but not every compiler knows
// F16C there, so cpuid is read. F16C works on AVX registers, which the check of AVX2 covers.
bool has_avx2() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx & bit_F16C) != 0;
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

}  // namespace

const KernelTable* kernel_table_of(InstructionSet set) {
  // The processor is asked once, since cpuid traps in a virtual machine.
  static const bool kHasAvx2 = kMostLevel >= 3 && has_avx2();
  static const bool kHasAvx512 = kMostLevel >= 4 && kHasAvx2 && has_avx512();
  switch (set) {
    case InstructionSet::kPlain:
      return &kPlainKernels;
    case InstructionSet::kAvx2:
      return kHasAvx2 ? &kAvx2Kernels : nullptr;
    case InstructionSet::kAvx512:
      return kHasAvx512 ? &kAvx512Kernels : nullptr;
  }
  return nullptr;
}

}  // namespace ronde::collectives
