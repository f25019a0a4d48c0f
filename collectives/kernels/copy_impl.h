// SPDX-License-Identifier: Apache-2.0
// The copies of one instruction set. This is part of kernels/reduce_impl.h, whose rules hold here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/kernels/reduce_vectors.h"
#include "collectives/kernels/types.h"

namespace ronde::collectives {
namespace {

// Returns the bytes before the next multiple of `unit`, which is a power of two.
[[gnu::always_inline]] inline std::int64_t bytes_to_multiple(const std::byte* address,
                                                             std::int64_t unit) {
  return -reinterpret_cast<std::intptr_t>(address) & (unit - 1);
}

// The loop prefetches lines this far ahead. The processor's own prefetchers stop at the end of a
// page and never prefetch a line to write: with pages that others have just written, as slots are,
// prefetching saves a tenth to a fifth of the time.
inline constexpr std::int64_t kReadAhead = 4096;
inline constexpr std::int64_t kWriteAhead = 2048;

// A shorter copy is over before the lines that it would prefetch arrive.
inline constexpr std::int64_t kLeastToPrefetch = 16384;

void copy_temporal(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  using Whole = Machine::Whole;
  constexpr std::int64_t kBlock = 2 * kLine;
  constexpr int kVectors = kBlock / sizeof(Whole);
  if (bytes < kLeastToPrefetch) {
    if (bytes > 0) __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  std::int64_t i = 0;
  for (; i + kBlock <= bytes; i += kBlock) {
    for (std::int64_t line = 0; line < kBlock; line += kLine) {
      // Lines beyond the end are read next, or soon, and may be prefetched. Lines to write beyond
      // the end may not, since others own them.
      __builtin_prefetch(from + i + kReadAhead + line, 0, 2);
      if (i + kWriteAhead + line < bytes) __builtin_prefetch(to + i + kWriteAhead + line, 1, 3);
    }
    Whole vectors[kVectors];  // NOLINT: std::array has members that a linker shares
    __builtin_memcpy(&vectors, from + i, sizeof(vectors));
    __builtin_memcpy(to + i, &vectors, sizeof(vectors));
  }
  __builtin_memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
}

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes) {
  using Whole = Machine::Whole;
  constexpr std::int64_t kBytes = sizeof(Whole);
  if (bytes < 2 * kBytes) {
    return copy_few(to, from, bytes);
  }
  const std::int64_t head = bytes_to_multiple(to, kBytes);
  copy_few(to, from, head);
  std::int64_t i = head;
  // Several loads come before the stores, which then fill a cache line without a pause.
  constexpr int kVectors = 4;
  for (; i + kVectors * kBytes <= bytes; i += kVectors * kBytes) {
    Whole vectors[kVectors];  // NOLINT: std::array has members that a linker shares
    __builtin_memcpy(&vectors, from + i, sizeof(vectors));
    for (int v = 0; v < kVectors; ++v) Machine::stream(to + i + v * kBytes, vectors[v]);
  }
  for (; i + kBytes <= bytes; i += kBytes) {
    Whole vector;
    __builtin_memcpy(&vector, from + i, sizeof(vector));
    Machine::stream(to + i, vector);
  }
  copy_few(to + i, from + i, bytes - i);
  Machine::finish_streams();
}

// T is the 16-bit type, of which one vector of f32 fills half a vector.
using Halves = Machine::Halves;
inline constexpr std::int64_t kLanes = sizeof(Halves) / 2;

template <class T>
[[gnu::always_inline]] inline Halves narrowed(Vector<float> value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return Machine::narrow_f16(value);
  } else {
    const auto bits = bits_of_f32_as_bf16_above<Vector<std::uint32_t>>(value);
    return __builtin_convertvector(bits >> 16, Halves);
  }
}

template <class T>
[[gnu::always_inline]] inline Vector<float> widened(Halves halves) {
  if constexpr (std::is_same_v<T, Float16>) {
    return Machine::widen_f16(halves);
  } else {
    using Bits = Vector<std::uint32_t>;
    const Bits wide = __builtin_convertvector(halves, Bits);
    return __builtin_bit_cast(Vector<float>, bits_of_bf16_widened(wide));
  }
}

// These load and store a vector, or its first bytes, at any alignment.
template <class V>
[[gnu::always_inline]] inline V load_vector(const std::byte* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}
template <class V>
[[gnu::always_inline]] inline V load_part(const std::byte* from, std::int64_t bytes) {
  V vector{};
  copy_few(reinterpret_cast<std::byte*>(&vector), from, bytes);
  return vector;
}
template <class V>
[[gnu::always_inline]] inline void store_vector(std::byte* to, V vector) {
  __builtin_memcpy(to, &vector, sizeof(vector));
}
template <class V>
[[gnu::always_inline]] inline void store_part(std::byte* to, V vector, std::int64_t bytes) {
  copy_few(to, reinterpret_cast<const std::byte*>(&vector), bytes);
}

template <class T>
[[gnu::always_inline]] inline void narrow_few(std::byte* to, const std::byte* from,
                                              std::int64_t elements) {
  store_part(to, narrowed<T>(load_part<Vector<float>>(from, 4 * elements)), 2 * elements);
}

template <class T, bool kStream>
[[gnu::always_inline]] inline void narrow_steps(std::byte* to, const std::byte* from,
                                                std::int64_t elements) {
  constexpr int kVectors = 4;
  std::int64_t i = 0;
  for (; i + kVectors * kLanes <= elements; i += kVectors * kLanes) {
    Halves halves[kVectors];  // NOLINT: as above
    for (int v = 0; v < kVectors; ++v) {
      halves[v] = narrowed<T>(load_vector<Vector<float>>(from + 4 * (i + v * kLanes)));
    }
    for (int v = 0; v < kVectors; ++v) {
      std::byte* address = to + 2 * (i + v * kLanes);
      if constexpr (kStream) {
        Machine::stream(address, halves[v]);
      } else {
        store_vector(address, halves[v]);
      }
    }
  }
  for (; i + kLanes <= elements; i += kLanes) {
    store_vector(to + 2 * i, narrowed<T>(load_vector<Vector<float>>(from + 4 * i)));
  }
  if (i < elements) narrow_few<T>(to + 2 * i, from + 4 * i, elements - i);
}

template <class T>
void narrow_to(std::byte* to, const std::byte* from, std::int64_t elements, StoreKind kind) {
  const std::int64_t head_bytes = bytes_to_multiple(to, sizeof(Halves));
  // An odd address stays odd, whatever number of elements is copied before the vectors.
  if (kind == StoreKind::kTemporal || head_bytes % 2 != 0) {
    return narrow_steps<T, false>(to, from, elements);
  }
  const std::int64_t head = head_bytes / 2 < elements ? head_bytes / 2 : elements;
  narrow_few<T>(to, from, head);
  narrow_steps<T, true>(to + 2 * head, from + 4 * head, elements - head);
  Machine::finish_streams();
}

template <class T>
void widen_from(std::byte* to, const std::byte* from, std::int64_t elements) {
  constexpr int kVectors = 4;
  std::int64_t i = 0;
  for (; i + kVectors * kLanes <= elements; i += kVectors * kLanes) {
    Vector<float> values[kVectors];  // NOLINT: as above
    for (int v = 0; v < kVectors; ++v) {
      values[v] = widened<T>(load_vector<Halves>(from + 2 * (i + v * kLanes)));
    }
    for (int v = 0; v < kVectors; ++v) store_vector(to + 4 * (i + v * kLanes), values[v]);
  }
  for (; i + kLanes <= elements; i += kLanes) {
    store_vector(to + 4 * i, widened<T>(load_vector<Halves>(from + 2 * i)));
  }
  if (i < elements) {
    const auto halves = load_part<Halves>(from + 2 * i, 2 * (elements - i));
    store_part(to + 4 * i, widened<T>(halves), 4 * (elements - i));
  }
}

constexpr CopyKernels make_copy_kernels() {
  return {copy_temporal,       copy_streaming,      narrow_to<Float16>,
          narrow_to<BFloat16>, widen_from<Float16>, widen_from<BFloat16>};
}

}  // namespace
}  // namespace ronde::collectives
