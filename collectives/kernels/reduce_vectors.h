// SPDX-License-Identifier: Apache-2.0
// Vectors of elements for the kernels of one instruction set: how they are loaded, widened to the
// type of the arithmetic, rounded and stored. This is part of kernels/reduce_impl.h and needs its
// Machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/float16.h"

namespace ronde::collectives {
namespace {

// A bool as it lies in memory; values other than 0 and 1 are allowed and count as true.
struct Bool {
  std::uint8_t byte;
};

template <class T>
struct VectorOf {
  using Whole [[gnu::vector_size(Machine::kBytes)]] = T;
  using Half [[gnu::vector_size(Machine::kBytes / 2)]] = T;
};
// A vector of the machine's full width.
template <class T>
using Vector = typename VectorOf<T>::Whole;

// The operands of the arithmetic: the elements of one load, widened to A, in one vector or in two.
template <class A, std::size_t kParts>
struct Values {
  Vector<A> parts[kParts];  // NOLINT: std::array has members that a linker shares
};

template <class A>
[[gnu::always_inline]] inline Values<A, 1> one_part(Vector<A> vector) {
  return {{vector}};
}

// The form of elements of type T in memory (Raw), and how they are widened and rounded.
template <class T>
struct Elements {
  using Arithmetic = T;
  using Raw = Vector<T>;
  [[gnu::always_inline]] static Values<T, 1> widen(Raw raw) { return one_part<T>(raw); }
  [[gnu::always_inline]] static Raw round(const Values<T, 1>& values) { return values.parts[0]; }
};

template <>
struct Elements<Bool> {
  using Arithmetic = std::uint8_t;
  using Raw = Vector<std::uint8_t>;
  [[gnu::always_inline]] static Values<std::uint8_t, 1> widen(Raw raw) {
    const Raw zero{};
    return one_part<std::uint8_t>(raw != zero ? zero + std::uint8_t{1} : zero);
  }
  [[gnu::always_inline]] static Raw round(const Values<std::uint8_t, 1>& values) {
    return values.parts[0];
  }
};

template <>
struct Elements<Float16> {
  using Arithmetic = float;
  using Raw = Machine::Halves;
  [[gnu::always_inline]] static Values<float, 1> widen(Raw raw) {
    return one_part<float>(Machine::widen_f16(raw));
  }
  [[gnu::always_inline]] static Raw round(const Values<float, 1>& values) {
    return Machine::narrow_f16(values.parts[0]);
  }
};

// Two bf16 lie in the place of one f32: those with even numbers in the lower half (the processor is
// little-endian), which a shift widens; those with odd numbers in the upper half, where they are
// f32 already. So nothing moves between lanes.
template <>
struct Elements<BFloat16> {
  using Arithmetic = float;
  using Raw = Vector<std::uint16_t>;
  using Bits = Vector<std::uint32_t>;
  [[gnu::always_inline]] static Values<float, 2> widen(Raw raw) {
    const Bits both = __builtin_bit_cast(Bits, raw);
    return {{__builtin_bit_cast(Vector<float>, bits_of_bf16_widened(both)),
             __builtin_bit_cast(Vector<float>, both & 0xffff0000U)}};
  }
  [[gnu::always_inline]] static Raw round(const Values<float, 2>& values) {
    const Bits even = bits_of_f32_as_bf16_above<Bits>(values.parts[0]);
    const Bits odd = bits_of_f32_as_bf16_above<Bits>(values.parts[1]);
    return __builtin_bit_cast(Raw, (even >> 16) | (odd & 0xffff0000U));
  }
};

// The 16-bit types for min and max without scaling become signed integers that are ordered as the
// numbers are, -0 below +0 (all bits of a negative number but its sign are inverted). Every NaN
// becomes the integer that wins, which becomes a NaN again.
template <class T, bool kLargest>
struct Ordered {
  T value;
};
template <class T>
inline constexpr std::int16_t kInfinityOf = 0;
template <>
inline constexpr std::int16_t kInfinityOf<Float16> = 0x7c00;
template <>
inline constexpr std::int16_t kInfinityOf<BFloat16> = 0x7f80;

template <class T, bool kLargest>
struct Elements<Ordered<T, kLargest>> {
  using Arithmetic = std::int16_t;
  using Raw = Vector<std::int16_t>;
  [[gnu::always_inline]] static Raw turned(Raw raw) {
    return raw ^ ((raw >> 15) & std::int16_t{0x7fff});
  }
  [[gnu::always_inline]] static Values<std::int16_t, 1> widen(Raw raw) {
    const Raw key = turned(raw);
    if constexpr (kLargest) {
      // The key of minus infinity has all bits but those of infinity.
      const Raw winner = Raw{} + std::int16_t{0x7fff};
      return one_part<std::int16_t>(key < static_cast<std::int16_t>(~kInfinityOf<T>) ? winner
                                                                                     : key);
    } else {
      const Raw winner = Raw{} - std::int16_t{0x7fff} - std::int16_t{1};
      return one_part<std::int16_t>(key > kInfinityOf<T> ? winner : key);
    }
  }
  [[gnu::always_inline]] static Raw round(const Values<std::int16_t, 1>& values) {
    return turned(values.parts[0]);
  }
};

template <class T>
using ArithmeticOf = typename Elements<T>::Arithmetic;
template <class T>
using ValuesOf = decltype(Elements<T>::widen(typename Elements<T>::Raw{}));
// The bytes that a vector of elements takes in memory.
template <class T>
inline constexpr std::int64_t kRawBytes = sizeof(typename Elements<T>::Raw);

// Copies fewer than 2 * kSize bytes, as two blocks that may overlap, of kSize or of less.
template <std::size_t kSize>
[[gnu::always_inline]] inline void copy_blocks(std::byte* to, const std::byte* from,
                                               std::size_t bytes) {
  if constexpr (kSize > 0) {
    if (bytes >= kSize) {
      struct Block {
        std::byte bytes[kSize];  // NOLINT: std::array has members that a linker shares
      } head, tail;
      const std::size_t rest = bytes - kSize;
      __builtin_memcpy(&head, from, kSize);
      __builtin_memcpy(&tail, from + rest, kSize);
      __builtin_memcpy(to, &head, kSize);
      __builtin_memcpy(to + rest, &tail, kSize);
    } else {
      copy_blocks<kSize / 2>(to, from, bytes);
    }
  }
}

// Copies fewer bytes than two vectors. It is not inlined, since a call costs little, and the code
// would make every kernel larger.
[[gnu::noinline]] void copy_few(std::byte* to, const std::byte* from, std::int64_t bytes) {
  copy_blocks<std::size_t{Machine::kBytes}>(to, from, static_cast<std::size_t>(bytes));
}

// These load a whole vector, or its first `bytes` with zeros behind them. Memory need not be
// aligned.
template <class T>
[[gnu::always_inline]] inline ValuesOf<T> load(const std::byte* from) {
  typename Elements<T>::Raw raw;
  __builtin_memcpy(&raw, from, sizeof(raw));
  return Elements<T>::widen(raw);
}
template <class T>
[[gnu::always_inline]] inline ValuesOf<T> load_few(const std::byte* from, std::int64_t bytes) {
  typename Elements<T>::Raw raw{};
  copy_few(reinterpret_cast<std::byte*>(&raw), from, bytes);
  return Elements<T>::widen(raw);
}
template <class T>
[[gnu::always_inline]] inline void store(std::byte* to, const ValuesOf<T>& values) {
  const typename Elements<T>::Raw raw = Elements<T>::round(values);
  __builtin_memcpy(to, &raw, sizeof(raw));
}
template <class T>
[[gnu::always_inline]] inline void store_few(std::byte* to, const ValuesOf<T>& values,
                                             std::int64_t bytes) {
  const typename Elements<T>::Raw raw = Elements<T>::round(values);
  copy_few(to, reinterpret_cast<const std::byte*>(&raw), bytes);
}

}  // namespace
}  // namespace ronde::collectives
