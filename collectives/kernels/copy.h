// SPDX-License-Identifier: Apache-2.0
// Moving bytes, and changing their width on the way: f32 tensors may travel in 16 bits. The copies
// of the data plane, in one place, since which stores are faster differs between machines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "collectives/kernels/types.h"

namespace ronde::collectives {

// Memory need not be aligned, and must not overlap. None of these touch a byte outside.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, StoreKind kind);

// f32 to f16 or bf16 (no other `wire` is valid): to nearest, ties to even; a NaN stays a NaN, and
// what is too large becomes an infinity.
void narrow_to_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements,
                    StoreKind kind);
// The way back; exact.
void widen_from_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements);

// The same, as functions for one instruction set; every one gives the same bits.
// `set` must not be above the best of this processor.
[[nodiscard]] const CopyKernels& copy_kernels_for(InstructionSet set);

}  // namespace ronde::collectives
