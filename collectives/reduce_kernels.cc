// SPDX-License-Identifier: Apache-2.0
#include "collectives/reduce_kernels.h"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "collectives/float16.h"

namespace ronde::collectives {
namespace {

using base::DType;
using base::ReduceOp;

// A bool as it lies in memory; other values than 0 and 1 are tolerated and count as true.
struct Bool {
  std::uint8_t byte;
};

// What a loop calls per element must be inlined, whatever its size, or the loop is not vectorised:
// hence always_inline below.

// ---- The type that the arithmetic of a dtype is done in
// ------------------------------------------

template <class T>
struct Arithmetic {
  using Type = T;
};
template <>
struct Arithmetic<Float16> {
  using Type = float;
};
template <>
struct Arithmetic<BFloat16> {
  using Type = float;
};
template <>
struct Arithmetic<Bool> {
  using Type = std::uint8_t;
};
template <class T>
using ArithmeticOf = typename Arithmetic<T>::Type;

template <class T>
[[gnu::always_inline]] inline ArithmeticOf<T> widen(T value) {
  return value;
}
template <>
[[gnu::always_inline]] inline float widen(Float16 value) {
  return to_f32(value);
}
template <>
[[gnu::always_inline]] inline float widen(BFloat16 value) {
  return to_f32(value);
}
template <>
std::uint8_t widen(Bool value) {
  return value.byte != 0 ? 1 : 0;
}

template <class T>
[[gnu::always_inline]] inline T round_to(ArithmeticOf<T> value) {
  return value;
}
template <>
[[gnu::always_inline]] inline Float16 round_to<Float16>(float value) {
  return to_f16(value);
}
template <>
[[gnu::always_inline]] inline BFloat16 round_to<BFloat16>(float value) {
  return to_bf16(value);
}
template <>
Bool round_to<Bool>(std::uint8_t value) {
  return {value};
}

// Through memcpy, since a user's pointer may have any alignment; compilers make plain loads of it.
template <class T>
T load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, std::int64_t index, T value) {
  std::memcpy(to + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

// ---- The operations
// ------------------------------------------------------------------------------

// Unsigned, and at least as wide as int: narrower types would be promoted to a signed int, and a
// product of those can overflow, which is undefined; the wrapped result is the same.
template <class A>
using Wrapping =
    std::conditional_t<(sizeof(A) < sizeof(unsigned)), unsigned, std::make_unsigned_t<A>>;

struct Sum {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) {
      return a + b;
    } else {
      return static_cast<A>(static_cast<Wrapping<A>>(a) + static_cast<Wrapping<A>>(b));
    }
  }
};

struct Product {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) {
      return a * b;
    } else {
      return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b));
    }
  }
};

// Floating-point numbers are compared as integers: the bits of a negative number, all but the sign
// turned over, make a signed integer that orders as the numbers do, with -0 below +0. A NaN is
// found by its bits as well. Comparisons of floating-point numbers may trap, so compilers do not
// vectorise those.
template <class A>
using SignedBits = std::conditional_t<sizeof(A) == 4, std::int32_t, std::int64_t>;

template <class Bits>
Bits ordered(Bits bits) {
  return bits ^ ((bits >> (8 * sizeof(Bits) - 1)) & std::numeric_limits<Bits>::max());
}

// The smaller or the larger of two numbers, given by their bits, unless one of them is a NaN.
template <class A, bool kLarger>
[[gnu::always_inline]] inline A select(A a, A b) {
  using Bits = SignedBits<A>;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
  constexpr Bits kInfinity = std::bit_cast<Bits>(std::numeric_limits<A>::infinity());
  const Bits x = std::bit_cast<Bits>(a);
  const Bits y = std::bit_cast<Bits>(b);
  const Bits chosen = (ordered(x) < ordered(y)) != kLarger ? x : y;
  const Bits y_or_chosen = (y & kMagnitude) > kInfinity ? y : chosen;
  return std::bit_cast<A>((x & kMagnitude) > kInfinity ? x : y_or_chosen);
}

struct Min {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) {
      return select<A, false>(a, b);
    } else {
      return b < a ? b : a;
    }
  }
};

struct Max {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_floating_point_v<A>) {
      return select<A, true>(a, b);
    } else {
      return a < b ? b : a;
    }
  }
};

// ---- The kernels
// ---------------------------------------------------------------------------------

// kPrescaled and kScaled: multiplying by 1 changes nothing, but costs the 16-bit types two
// conversions.
template <class T, bool kPrescaled>
[[gnu::always_inline]] inline ArithmeticOf<T> contribution(const std::byte* from,
                                                           std::int64_t index,
                                                           ArithmeticOf<T> prescale) {
  const ArithmeticOf<T> value = widen<T>(load<T>(from, index));
  if constexpr (kPrescaled) {
    return widen<T>(round_to<T>(value * prescale));
  } else {
    return value;
  }
}

// The last thing that happens to a result, before it is rounded.
template <class T, bool kScaled, bool kDivided>
[[gnu::always_inline]] inline ArithmeticOf<T> finished(ArithmeticOf<T> value,
                                                       ArithmeticOf<T> factor,
                                                       std::int64_t divisor) {
  using A = ArithmeticOf<T>;
  if constexpr (kScaled) {
    return value * factor;
  } else if constexpr (kDivided && std::is_signed_v<A>) {
    return static_cast<A>(std::int64_t{value} / divisor);
  } else if constexpr (kDivided) {
    return static_cast<A>(std::uint64_t{value} / static_cast<std::uint64_t>(divisor));
  } else {
    return value;
  }
}

template <class T, class Op, bool kPrescaled, bool kScaled, bool kDivided>
void reduce(std::byte* __restrict accumulator, const std::byte* __restrict own,
            std::int64_t elements, const Scaling& scaling) {
  using A = ArithmeticOf<T>;
  const A prescale = kPrescaled ? static_cast<A>(scaling.prescale) : A{1};
  const A factor = kScaled ? static_cast<A>(scaling.factor) : A{1};
  const std::int64_t divisor = scaling.divisor;
  for (std::int64_t i = 0; i < elements; ++i) {
    const A received = widen<T>(load<T>(accumulator, i));
    const A sum = Op::apply(received, contribution<T, kPrescaled>(own, i, prescale));
    store<T>(accumulator, i, round_to<T>(finished<T, kScaled, kDivided>(sum, factor, divisor)));
  }
}

template <class T, class Op>
void combine(std::byte* accumulator, const std::byte* own, std::int64_t elements,
             const Scaling& scaling) {
  if constexpr (std::is_floating_point_v<ArithmeticOf<T>>) {
    if (scaling.prescale != 1.0) {
      return reduce<T, Op, true, false, false>(accumulator, own, elements, scaling);
    }
  }
  reduce<T, Op, false, false, false>(accumulator, own, elements, scaling);
}

template <class T, class Op>
void last_hop(std::byte* accumulator, const std::byte* own, std::int64_t elements,
              const Scaling& scaling) {
  if constexpr (std::is_floating_point_v<ArithmeticOf<T>>) {
    const bool prescaled = scaling.prescale != 1.0;
    if (scaling.factor != 1.0) {
      return prescaled ? reduce<T, Op, true, true, false>(accumulator, own, elements, scaling)
                       : reduce<T, Op, false, true, false>(accumulator, own, elements, scaling);
    }
  } else if (scaling.divisor != 1) {
    return reduce<T, Op, false, false, true>(accumulator, own, elements, scaling);
  }
  combine<T, Op>(accumulator, own, elements, scaling);
}

template <class T>
void first(std::byte* accumulator, [[maybe_unused]] std::int64_t elements,
           [[maybe_unused]] const Scaling& scaling) {
  if constexpr (std::is_floating_point_v<ArithmeticOf<T>>) {
    using A = ArithmeticOf<T>;
    if (scaling.prescale == 1.0) return;
    const A prescale = static_cast<A>(scaling.prescale);
    for (std::int64_t i = 0; i < elements; ++i) {
      store<T>(accumulator, i, round_to<T>(widen<T>(load<T>(accumulator, i)) * prescale));
    }
  } else if constexpr (std::is_same_v<T, Bool>) {
    for (std::int64_t i = 0; i < elements; ++i) {
      store<T>(accumulator, i, round_to<T>(widen<T>(load<T>(accumulator, i))));
    }
  }
}

// The prescaled contribution is not rounded on its way to the factor: rounding comes last, and
// once.
template <class T>
void only(std::byte* accumulator, std::int64_t elements, const Scaling& scaling) {
  if constexpr (std::is_floating_point_v<ArithmeticOf<T>>) {
    using A = ArithmeticOf<T>;
    if (scaling.prescale == 1.0 && scaling.factor == 1.0) return;
    const A prescale = static_cast<A>(scaling.prescale);
    const A factor = static_cast<A>(scaling.factor);
    for (std::int64_t i = 0; i < elements; ++i) {
      const A value = widen<T>(load<T>(accumulator, i)) * prescale;
      store<T>(accumulator, i, round_to<T>(value * factor));
    }
  } else {
    first<T>(accumulator, elements, scaling);
  }
}

// ---- The table
// -----------------------------------------------------------------------------------

template <class T, class Op>
constexpr ReduceKernels kernels() {
  return {first<T>, combine<T, Op>, last_hop<T, Op>, only<T>};
}

using Row = std::array<ReduceKernels, base::kReduceOps.size()>;

// In the order of ReduceOp: average, sum, min, max, product. An average is a sum with a factor.
template <class T>
constexpr Row row_of() {
  return {kernels<T, Sum>(), kernels<T, Sum>(), kernels<T, Min>(), kernels<T, Max>(),
          kernels<T, Product>()};
}

constexpr Row row_of_bool() {
  return {ReduceKernels{}, ReduceKernels{}, kernels<Bool, Min>(), kernels<Bool, Max>(),
          ReduceKernels{}};
}

// In the order of DType.
constexpr std::array<Row, base::kDTypes.size()> kTable{{
    row_of<std::uint8_t>(),
    row_of<std::int8_t>(),
    row_of<std::uint16_t>(),
    row_of<std::int16_t>(),
    row_of<std::uint32_t>(),
    row_of<std::int32_t>(),
    row_of<std::uint64_t>(),
    row_of<std::int64_t>(),
    row_of<Float16>(),
    row_of<BFloat16>(),
    row_of<float>(),
    row_of<double>(),
    row_of_bool(),
}};

}  // namespace

Scaling scaling_of(const Reduction& reduction, int ranks) {
  const bool average = reduction.op == ReduceOp::kAverage;
  if (!base::is_floating(reduction.dtype)) {
    base::check(reduction.prescale == 1.0 && reduction.postscale == 1.0,
                "integers cannot be scaled");
    return {.prescale = 1.0, .factor = 1.0, .divisor = average ? ranks : 1};
  }
  // Rounded here as well as in the kernels, so that "is it exactly 1" asks about the number used.
  const bool f64 = reduction.dtype == DType::kF64;
  const auto rounded = [f64](double x) { return f64 ? x : double{static_cast<float>(x)}; };
  return {.prescale = rounded(reduction.prescale),
          .factor = rounded(average ? reduction.postscale / ranks : reduction.postscale),
          .divisor = 1};
}

const ReduceKernels& kernels_for(DType dtype, ReduceOp op) {
  base::check(base::is_defined(dtype, op), "no kernel: the operation is not defined for the dtype");
  return kTable[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
}

}  // namespace ronde::collectives
