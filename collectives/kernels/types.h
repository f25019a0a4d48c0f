// SPDX-License-Identifier: Apache-2.0
// The types that kernels are called through, which are the same for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ronde::collectives {

// The instruction sets that kernels are compiled for; each includes those before it.
enum class InstructionSet : std::uint8_t {
  kPlain = 0,   // what every processor of the architecture has
  kAvx2 = 1,    // with F16C
  kAvx512 = 2,  // F, BW, VL, DQ
};

// The stores into slots go through the caches (temporal) or around them (streaming). Streaming
// stores are complete when the function returns: later stores become visible after them. A
// processor without wide vectors stores through the caches for both kinds.
enum class StoreKind : std::uint8_t { kTemporal = 0, kStreaming = 1 };

// The numbers that the kernels multiply or divide with.
struct Scaling {
  double prescale = 1.0;
  double factor = 1.0;       // the average and the postscale, in one
  std::int64_t divisor = 1;  // for an average of integers
  // One factor for each source of a host's sum; nullptr: `prescale` holds for all of them.
  const double* prescales = nullptr;
};

// Memory need not be aligned. `accumulator` and `own` must not overlap.
struct ReduceKernels {
  using InPlace = void (*)(std::byte* accumulator, std::int64_t elements, const Scaling& scaling);
  using WithOwn = void (*)(std::byte* accumulator, const std::byte* own, std::int64_t elements,
                           const Scaling& scaling);
  // Pointers and counts, not spans: members of std::span compiled for one instruction set must not
  // be shared with code for another.
  using OfHost = void (*)(const std::byte* const* sources, std::int64_t source_count,
                          std::byte* const* destinations, std::int64_t destination_count,
                          std::int64_t elements, const Scaling& scaling);

  InPlace first = nullptr;
  WithOwn combine = nullptr;
  WithOwn last_hop = nullptr;
  InPlace only = nullptr;
  OfHost host = nullptr;  // of_host() in raw form

  // Sums a host's contributions: elements of several contributions, in rank order, are prescaled,
  // reduced in the arithmetic's type, multiplied by the factor (integers: divided), rounded once,
  // and stored to every destination. A destination may be exactly one of the sources; otherwise
  // nothing overlaps. There must be at least one source and one destination.
  void of_host(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
               std::int64_t elements, const Scaling& scaling) const {
    host(sources.data(), static_cast<std::int64_t>(sources.size()), destinations.data(),
         static_cast<std::int64_t>(destinations.size()), elements, scaling);
  }
};

// The copies of one instruction set; every set gives the same bits.
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

}  // namespace ronde::collectives
