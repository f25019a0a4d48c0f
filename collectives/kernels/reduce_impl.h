// SPDX-License-Identifier: Apache-2.0
// The kernels, written once and compiled for each instruction set. A source file reduce_<set>.cc
// defines the struct Machine in the anonymous namespace, includes this and exports one table.
// Machine has the vector width, the conversions of f16 and the streaming stores.
//
// Everything here is in an anonymous namespace on purpose, and nothing here calls an inline
// function or a function template of the standard library or of base/: the linker keeps one copy of
// such a function for the whole program, and must not choose the one with AVX-512 in it. A test
// checks the object files. It has more than 400 lines because these parts must be compiled
// together, with the flags of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "collectives/kernels/copy_impl.h"
#include "collectives/kernels/reduce_divide.h"
#include "collectives/kernels/reduce_vectors.h"
#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

// ---- The operations, on vectors. Integers that wrap around come as unsigned ones.

struct Sum {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a + b;
  }
};

struct Product {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a * b;
  }
};

struct BitAnd {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a & b;
  }
};

struct BitOr {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a | b;
  }
};

struct BitXor {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a ^ b;
  }
};

// Floating-point numbers of which neither is smaller are equal, or one is a NaN. Bitwise "or" is
// right for both in a minimum: it keeps equal bits, gives -0 for zeros of both signs, and leaves a
// NaN a NaN. For a maximum the sign bits are combined by "and".
template <class Bits>
inline constexpr Bits kSignBit = Bits{1} << (8 * sizeof(Bits) - 1);

struct Min {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a < b ? a : b;
  }
  template <class V, class Bits>
  [[gnu::always_inline]] static V apply_floating(V a, V b) {
    using B = Vector<Bits>;
    const V neither = __builtin_bit_cast(V, __builtin_bit_cast(B, a) | __builtin_bit_cast(B, b));
    const V b_or_neither = b < a ? b : neither;
    return a < b ? a : b_or_neither;
  }
};

struct Max {
  template <class V>
  [[gnu::always_inline]] static V apply(V a, V b) {
    return a < b ? b : a;
  }
  template <class V, class Bits>
  [[gnu::always_inline]] static V apply_floating(V a, V b) {
    using B = Vector<Bits>;
    const B x = __builtin_bit_cast(B, a);
    const B y = __builtin_bit_cast(B, b);
    const V neither = __builtin_bit_cast(V, ((x | y) & ~kSignBit<Bits>) | (x & y));
    const V b_or_neither = a < b ? b : neither;
    return b < a ? a : b_or_neither;
  }
};

template <class Op, class A>
[[gnu::always_inline]] inline Vector<A> apply_to(Vector<A> a, Vector<A> b) {
  if constexpr (std::is_floating_point_v<A> &&
                (std::is_same_v<Op, Min> || std::is_same_v<Op, Max>)) {
    using Bits = std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>;
    return Op::template apply_floating<Vector<A>, Bits>(a, b);
  } else {
    return Op::apply(a, b);
  }
}
template <class Op, class A>
[[gnu::always_inline]] inline Values<A, 1> apply(const Values<A, 1>& a, const Values<A, 1>& b) {
  return {{apply_to<Op, A>(a.parts[0], b.parts[0])}};
}
template <class Op, class A>
[[gnu::always_inline]] inline Values<A, 2> apply(const Values<A, 2>& a, const Values<A, 2>& b) {
  return {{apply_to<Op, A>(a.parts[0], b.parts[0]), apply_to<Op, A>(a.parts[1], b.parts[1])}};
}

// ---- Scaling

struct Unscaled {
  static constexpr bool kPrescales = false;  // contributions differ from what was loaded
  template <class V>
  [[gnu::always_inline]] V contribution(const V& values, std::int64_t /*source*/) const {
    return values;
  }
  template <class V>
  [[gnu::always_inline]] V result(const V& values) const {
    return values;
  }
};

// Multiplying by 1 changes nothing; but it costs the 16-bit types of a ring a rounding, so
// kPrescaled leaves it out.
template <class A, bool kPrescaled>
struct Scaled {
  static constexpr bool kPrescales = kPrescaled;
  A prescale;
  A factor;
  explicit Scaled(const Scaling& scaling)
      : prescale(static_cast<A>(scaling.prescale)), factor(static_cast<A>(scaling.factor)) {}
  template <class V>
  [[gnu::always_inline]] V contribution(const V& values, std::int64_t /*source*/) const {
    if constexpr (!kPrescaled) return values;
    return multiplied(values, prescale);
  }
  template <class V>
  [[gnu::always_inline]] V result(const V& values) const {
    return multiplied(values, factor);
  }
  [[gnu::always_inline]] static Values<A, 1> multiplied(const Values<A, 1>& values, A by) {
    return {{values.parts[0] * by}};
  }
  [[gnu::always_inline]] static Values<A, 2> multiplied(const Values<A, 2>& values, A by) {
    return {{values.parts[0] * by, values.parts[1] * by}};
  }
};

// Every source of a host's sum has a prescale of its own.
template <class A>
struct ScaledEach {
  static constexpr bool kPrescales = true;
  const double* prescales;
  A factor;
  explicit ScaledEach(const Scaling& scaling)
      : prescales(scaling.prescales), factor(static_cast<A>(scaling.factor)) {}
  template <class V>
  [[gnu::always_inline]] V contribution(const V& values, std::int64_t source) const {
    return Scaled<A, true>::multiplied(values, static_cast<A>(prescales[source]));
  }
  template <class V>
  [[gnu::always_inline]] V result(const V& values) const {
    return Scaled<A, true>::multiplied(values, factor);
  }
};

// This many vectors are worked on at a time, in registers.
inline constexpr std::size_t kUnrolled = 4;
// Returns the place of vector v of a step.
template <class T>
[[gnu::always_inline]] constexpr std::int64_t at(std::size_t v) {
  return static_cast<std::int64_t>(v) * kRawBytes<T>;
}
// Averages of integers are summed and divided a block at a time, which stays in the first cache.
inline constexpr std::int64_t kBlockBytes = 4096;

// ---- The elements that an operation works on

template <class T>
inline constexpr bool kIsFloating = std::is_floating_point_v<ArithmeticOf<T>>;
// Integers whose average is divided; those of 8 and 16 bits have none (base::is_defined).
template <class T>
inline constexpr bool kIsAveraged = std::is_integral_v<T> && sizeof(T) >= 4;
template <class Op>
inline constexpr bool kIsOrder = std::is_same_v<Op, Min> || std::is_same_v<Op, Max>;

// The elements without scaling. Only comparisons and divisions see the sign of an integer; the
// other operations share the code for unsigned ones, where wrapping around is defined. Comparing
// floating-point numbers of 16 bits needs no arithmetic.
template <class T, class Op>
struct LaneOf {
  using Type = T;
};
template <class T, class Op>
  requires(std::is_integral_v<T> && !kIsOrder<Op>)
struct LaneOf<T, Op> {
  using Type = std::make_unsigned_t<T>;
};
template <class T, class Op>
  requires((std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) && kIsOrder<Op>)
struct LaneOf<T, Op> {
  using Type = Ordered<T, std::is_same_v<Op, Max>>;
};

// ---- The sum of a host

struct Memory {
  const std::byte* const* sources;
  std::int64_t source_count;
  std::byte* const* destinations;
  std::int64_t destination_count;
};

// A step reads everything before it writes anything, since a destination may be a source.
// kSources is the number of sources, or 0 for any.
template <class T, class Op, int kSources, std::size_t kVectors, class Scale>
[[gnu::always_inline]] inline void host_step(const Memory& memory, std::int64_t offset,
                                             const Scale& scale) {
  ValuesOf<T> values[kVectors];  // NOLINT: std::array has members that a linker shares
  const std::byte* source = memory.sources[0] + offset;
  for (std::size_t v = 0; v < kVectors; ++v) {
    values[v] = scale.contribution(load<T>(source + at<T>(v)), 0);
  }
  const std::int64_t sources = kSources > 0 ? kSources : memory.source_count;
  for (std::int64_t s = 1; s < sources; ++s) {
    source = memory.sources[s] + offset;
    for (std::size_t v = 0; v < kVectors; ++v) {
      values[v] = apply<Op>(values[v], scale.contribution(load<T>(source + at<T>(v)), s));
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) values[v] = scale.result(values[v]);
  for (std::int64_t d = 0; d < memory.destination_count; ++d) {
    std::byte* destination = memory.destinations[d] + offset;
    for (std::size_t v = 0; v < kVectors; ++v) store<T>(destination + at<T>(v), values[v]);
  }
}

// Sums the rest, which is shorter than a vector.
template <class T, class Op, class Scale>
[[gnu::always_inline]] inline void host_rest(const Memory& memory, std::int64_t offset,
                                             std::int64_t bytes, const Scale& scale) {
  ValuesOf<T> values = scale.contribution(load_few<T>(memory.sources[0] + offset, bytes), 0);
  for (std::int64_t s = 1; s < memory.source_count; ++s) {
    values =
        apply<Op>(values, scale.contribution(load_few<T>(memory.sources[s] + offset, bytes), s));
  }
  values = scale.result(values);
  for (std::int64_t d = 0; d < memory.destination_count; ++d) {
    store_few<T>(memory.destinations[d] + offset, values, bytes);
  }
}

// Prefetches the first destination, while the other loads are outstanding. Callers name first what
// takes longest to come: their own memory, which no other core has in its cache, or, where vectors
// are summed in place, another core's. The processor's prefetchers stop at the end of a page.
template <std::int64_t kBytes>
[[gnu::always_inline]] inline void prefetch_own(const std::byte* own) {
  constexpr std::int64_t kAhead = 4096;
  for (std::int64_t line = 0; line < kBytes; line += 64) {
    __builtin_prefetch(own + kAhead + line, 0, 2);
  }
}

// Sums bytes [offset, end) of all memory.
template <class T, class Op, class Scale>
[[gnu::noinline]] void host_range(const Memory& memory, std::int64_t offset, std::int64_t end,
                                  Scale scale) {
  constexpr std::int64_t kStep = at<T>(kUnrolled);
  if (memory.source_count == 2) {
    for (; offset + kStep <= end; offset += kStep) {
      prefetch_own<kStep>(memory.destinations[0] + offset);
      host_step<T, Op, 2, kUnrolled>(memory, offset, scale);
    }
  } else {
    for (; offset + kStep <= end; offset += kStep) {
      prefetch_own<kStep>(memory.destinations[0] + offset);
      host_step<T, Op, 0, kUnrolled>(memory, offset, scale);
    }
  }
  for (; offset + kRawBytes<T> <= end; offset += kRawBytes<T>) {
    host_step<T, Op, 0, 1>(memory, offset, scale);
  }
  if (offset < end) host_rest<T, Op>(memory, offset, end - offset, scale);
}

// The sum of a block goes to one destination, is divided there, and copied to the others.
template <class T>
void host_average(const Memory& memory, std::int64_t bytes, std::int64_t divisor) {
  const Memory to_first{memory.sources, memory.source_count, memory.destinations, 1};
  for (std::int64_t offset = 0; offset < bytes; offset += kBlockBytes) {
    const std::int64_t end = bytes - offset < kBlockBytes ? bytes : offset + kBlockBytes;
    host_range<typename LaneOf<T, Sum>::Type, Sum>(to_first, offset, end, Unscaled{});
    std::byte* first = memory.destinations[0] + offset;
    divide<T>(first, (end - offset) / std::int64_t{sizeof(T)}, divisor);
    for (std::int64_t d = 1; d < memory.destination_count; ++d) {
      __builtin_memcpy(memory.destinations[d] + offset, first,
                       static_cast<std::size_t>(end - offset));
    }
  }
}

template <class T, class Op>
void of_host(const std::byte* const* sources, std::int64_t source_count,
             std::byte* const* destinations, std::int64_t destination_count, std::int64_t elements,
             const Scaling& scaling) {
  const Memory memory{sources, source_count, destinations, destination_count};
  const std::int64_t bytes = elements * std::int64_t{sizeof(T)};
  using Lane = typename LaneOf<T, Op>::Type;
  if constexpr (kIsFloating<T>) {
    using A = ArithmeticOf<T>;
    if (scaling.prescales != nullptr) {
      return host_range<T, Op>(memory, 0, bytes, ScaledEach<A>(scaling));
    }
    if (scaling.prescale != 1.0) {
      return host_range<T, Op>(memory, 0, bytes, Scaled<A, true>(scaling));
    }
    if (scaling.factor != 1.0) {
      return host_range<T, Op>(memory, 0, bytes, Scaled<A, false>(scaling));
    }
  } else if constexpr (std::is_same_v<Op, Sum> && kIsAveraged<T>) {
    if (scaling.divisor != 1) {
      return host_average<T>(memory, bytes, scaling.divisor);
    }
  }
  host_range<Lane, Op>(memory, 0, bytes, Unscaled{});
}

// ---- The hops of a ring

template <class T, class Op, class Scale>
[[gnu::always_inline]] inline ValuesOf<T> hop(const ValuesOf<T>& received, ValuesOf<T> own,
                                              const Scale& scale) {
  if constexpr (Scale::kPrescales) {
    own = Elements<T>::widen(Elements<T>::round(scale.contribution(own, 0)));
  }
  return scale.result(apply<Op>(received, own));
}

template <class T, class Op, std::size_t kVectors, class Scale>
[[gnu::always_inline]] inline void hop_step(std::byte* accumulator, const std::byte* own,
                                            const Scale& scale) {
  ValuesOf<T> values[kVectors];  // NOLINT: std::array has members that a linker shares
  for (std::size_t v = 0; v < kVectors; ++v) {
    const std::int64_t offset = at<T>(v);
    values[v] = hop<T, Op>(load<T>(accumulator + offset), load<T>(own + offset), scale);
  }
  for (std::size_t v = 0; v < kVectors; ++v) store<T>(accumulator + at<T>(v), values[v]);
}

template <class T, class Op, class Scale>
[[gnu::noinline]] void hop_range(std::byte* accumulator, const std::byte* own, std::int64_t bytes,
                                 Scale scale) {
  constexpr std::int64_t kStep = at<T>(kUnrolled);
  std::int64_t i = 0;
  for (; i + kStep <= bytes; i += kStep) {
    hop_step<T, Op, kUnrolled>(accumulator + i, own + i, scale);
  }
  for (; i + kRawBytes<T> <= bytes; i += kRawBytes<T>) {
    hop_step<T, Op, 1>(accumulator + i, own + i, scale);
  }
  if (i < bytes) {
    const ValuesOf<T> received = load_few<T>(accumulator + i, bytes - i);
    const ValuesOf<T> values = hop<T, Op>(received, load_few<T>(own + i, bytes - i), scale);
    store_few<T>(accumulator + i, values, bytes - i);
  }
}

template <class T, class Op>
void last_hop(std::byte* accumulator, const std::byte* own, std::int64_t elements,
              const Scaling& scaling) {
  const std::int64_t bytes = elements * std::int64_t{sizeof(T)};
  using Lane = typename LaneOf<T, Op>::Type;
  if constexpr (kIsFloating<T>) {
    using A = ArithmeticOf<T>;
    if (scaling.prescale != 1.0) {
      return hop_range<T, Op>(accumulator, own, bytes, Scaled<A, true>(scaling));
    }
    if (scaling.factor != 1.0) {
      return hop_range<T, Op>(accumulator, own, bytes, Scaled<A, false>(scaling));
    }
  } else if constexpr (std::is_same_v<Op, Sum> && kIsAveraged<T>) {
    if (scaling.divisor != 1) {
      for (std::int64_t i = 0; i < bytes; i += kBlockBytes) {
        const std::int64_t length = bytes - i < kBlockBytes ? bytes - i : kBlockBytes;
        hop_range<Lane, Op>(accumulator + i, own + i, length, Unscaled{});
        divide<T>(accumulator + i, length / std::int64_t{sizeof(T)}, scaling.divisor);
      }
      return;
    }
  }
  hop_range<Lane, Op>(accumulator, own, bytes, Unscaled{});
}

template <class T, class Op>
void combine(std::byte* accumulator, const std::byte* own, std::int64_t elements,
             const Scaling& scaling) {
  last_hop<T, Op>(accumulator, own, elements, Scaling{scaling.prescale, 1.0, 1});
}

// A contribution alone is the sum of a host with one rank.
template <class T>
void only(std::byte* accumulator, std::int64_t elements, const Scaling& scaling) {
  const std::byte* const source = accumulator;
  const Memory memory{&source, 1, &accumulator, 1};
  [[maybe_unused]] const std::int64_t bytes = elements * std::int64_t{sizeof(T)};
  if constexpr (kIsFloating<T>) {
    if (scaling.prescale != 1.0 || scaling.factor != 1.0) {
      host_range<T, Sum>(memory, 0, bytes, Scaled<ArithmeticOf<T>, true>(scaling));
    }
  } else if constexpr (std::is_same_v<T, Bool>) {
    host_range<T, BitOr>(memory, 0, bytes, Unscaled{});
  }
}

template <class T>
void first(std::byte* accumulator, std::int64_t elements, const Scaling& scaling) {
  only<T>(accumulator, elements, Scaling{scaling.prescale, 1.0, 1});
}

// ---- The table

template <class T, class Op>
constexpr ReduceKernels make_kernels() {
  return {first<T>, combine<T, Op>, last_hop<T, Op>, only<T>, of_host<T, Op>};
}

// In the order of ReduceOp: average, sum, min, max, product, and, or, xor. An average is a sum with
// a factor or a divisor.
template <class T>
constexpr KernelRow make_row() {
  if constexpr (std::is_same_v<T, Bool>) {
    return {ReduceKernels{},          ReduceKernels{},          make_kernels<T, Min>(),
            make_kernels<T, Max>(),   ReduceKernels{},          make_kernels<T, BitAnd>(),
            make_kernels<T, BitOr>(), make_kernels<T, BitXor>()};
  } else if constexpr (kIsFloating<T>) {
    return {make_kernels<T, Sum>(), make_kernels<T, Sum>(), make_kernels<T, Min>(),
            make_kernels<T, Max>(), make_kernels<T, Product>()};
  } else {
    KernelRow row = {make_kernels<T, Sum>(),     make_kernels<T, Sum>(),
                     make_kernels<T, Min>(),     make_kernels<T, Max>(),
                     make_kernels<T, Product>(), make_kernels<T, BitAnd>(),
                     make_kernels<T, BitOr>(),   make_kernels<T, BitXor>()};
    if constexpr (!kIsAveraged<T>) row[0] = ReduceKernels{};
    return row;
  }
}

constexpr KernelTable make_table() {
  return {{{
              make_row<std::uint8_t>(),
              make_row<std::int8_t>(),
              make_row<std::uint16_t>(),
              make_row<std::int16_t>(),
              make_row<std::uint32_t>(),
              make_row<std::int32_t>(),
              make_row<std::uint64_t>(),
              make_row<std::int64_t>(),
              make_row<Float16>(),
              make_row<BFloat16>(),
              make_row<float>(),
              make_row<double>(),
              make_row<Bool>(),
          }},
          make_copy_kernels()};
}

}  // namespace
}  // namespace ronde::collectives
