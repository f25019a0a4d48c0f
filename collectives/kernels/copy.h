// SPDX-License-Identifier: Apache-2.0
// The copies of the data plane, which may change the width of numbers: f32 tensors can travel in 16
// bits. They are in one place, since which stores are faster differs between machines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "collectives/kernels/types.h"

namespace ronde::collectives {

// Memory is the caller's, need not be aligned, and must not overlap. None of these functions touch
// a byte outside. Thread safety: every function may be called from any thread.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, StoreKind kind);

// Converts f32 to f16 or bf16 (no other `wire` is valid): to nearest, ties to even; a NaN stays a
// NaN, and a number that is too large becomes an infinity.
void narrow_to_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements,
                    StoreKind kind);
// Converts back, exactly.
void widen_from_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements);

// Returns the same copies for one instruction set, which must not be above the best of this
// processor; every set gives the same bits.
[[nodiscard]] const CopyKernels& copy_kernels_for(InstructionSet set);

}  // namespace ronde::collectives
