// SPDX-License-Identifier: Apache-2.0
// Moving bytes, and changing their width on the way: f32 tensors may travel in 16 bits. The copies
// of the data plane, in one place, since which stores are faster differs between machines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace ronde::collectives {

enum class InstructionSet : std::uint8_t;  // reduce_kernels.h

// How bytes are stored into slots: through the caches, or around them. Streaming stores are
// complete when the function returns: what is stored afterwards is seen after them. A processor
// without wide vectors stores through the caches either way.
enum class StoreKind : std::uint8_t { kTemporal = 0, kStreaming = 1 };

// Memory need not be aligned, and must not overlap. None of these touch a byte outside.
void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes, StoreKind kind);

// f32 to f16 or bf16 (no other `wire` is valid): to nearest, ties to even; a NaN stays a NaN, and
// what is too large becomes an infinity.
void narrow_to_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements,
                    StoreKind kind);
// The way back; exact.
void widen_from_wire(base::DType wire, std::byte* to, const std::byte* from, std::int64_t elements);

// The same, as functions for one instruction set; every one gives the same bits.
struct CopyKernels {
  using Copy = void (*)(std::byte* to, const std::byte* from, std::int64_t bytes);
  using Narrow = void (*)(std::byte* to, const std::byte* from, std::int64_t elements,
                          StoreKind kind);
  using Widen = void (*)(std::byte* to, const std::byte* from, std::int64_t elements);
  Copy copy_temporal = nullptr;
  Copy copy_streaming = nullptr;
  Narrow narrow_to_f16 = nullptr;
  Narrow narrow_to_bf16 = nullptr;
  Widen widen_from_f16 = nullptr;
  Widen widen_from_bf16 = nullptr;
};
// `set` must not be above the best of this processor.
[[nodiscard]] const CopyKernels& copy_kernels_for(InstructionSet set);

}  // namespace ronde::collectives
