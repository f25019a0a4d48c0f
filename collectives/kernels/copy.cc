// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/copy.h"

#include "base/check.h"
#include "collectives/kernels/reduce.h"
#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

const CopyKernels& best() { return copy_kernels_for(best_instruction_set()); }

void check_wire(base::DType wire) {
  base::check(wire == base::DType::kF16 || wire == base::DType::kBf16,
              "only f16 and bf16 are narrower on the wire");
}

}  // namespace

const CopyKernels& copy_kernels_for(InstructionSet set) {
  const KernelTable* table = kernel_table_of(set);
  base::check(table != nullptr, "no kernel: the processor lacks the instruction set");
  return table->copy;
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, StoreKind kind) {
  const CopyKernels& kernels = best();
  (kind == StoreKind::kStreaming ? kernels.copy_streaming : kernels.copy_temporal)(to, from, bytes);
}

void narrow_to_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements,
                    StoreKind kind) {
  check_wire(wire);
  const CopyKernels& kernels = best();
  const auto narrow = wire == base::DType::kF16 ? kernels.narrow_to_f16 : kernels.narrow_to_bf16;
  narrow(to, from, elements, kind);
}

void widen_from_wire(base::DType wire, std::byte* to, const std::byte* from,
                     std::int64_t elements) {
  check_wire(wire);
  const CopyKernels& kernels = best();
  const auto widen = wire == base::DType::kF16 ? kernels.widen_from_f16 : kernels.widen_from_bf16;
  widen(to, from, elements);
}

}  // namespace ronde::collectives
