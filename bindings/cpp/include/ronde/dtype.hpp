// SPDX-License-Identifier: Apache-2.0
// The element types of tensors. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ronde {

// A 16-bit floating type of IEEE 754 as it lies in memory. Thread safety: a value.
struct Float16 {
  std::uint16_t bits;
};
// The upper half of a float. Thread safety: a value.
struct BFloat16 {
  std::uint16_t bits;
};

namespace detail {

template <ronde_dtype kDType>
using DType = std::integral_constant<ronde_dtype, kDType>;

// The dtypes of the types of the language, and of Float16 and BFloat16.
template <typename T>
struct BuiltInDType {};
template <>
struct BuiltInDType<float> : DType<RONDE_F32> {};
template <>
struct BuiltInDType<double> : DType<RONDE_F64> {};
template <>
struct BuiltInDType<Float16> : DType<RONDE_F16> {};
template <>
struct BuiltInDType<BFloat16> : DType<RONDE_BF16> {};
template <>
struct BuiltInDType<bool> : DType<RONDE_BOOL> {};
template <typename T>
  requires(std::is_integral_v<T> && sizeof(T) == 1)
struct BuiltInDType<T> : DType<std::is_signed_v<T> ? RONDE_I8 : RONDE_U8> {};
template <typename T>
  requires(std::is_integral_v<T> && sizeof(T) == 2)
struct BuiltInDType<T> : DType<std::is_signed_v<T> ? RONDE_I16 : RONDE_U16> {};
template <typename T>
  requires(std::is_integral_v<T> && sizeof(T) == 4)
struct BuiltInDType<T> : DType<std::is_signed_v<T> ? RONDE_I32 : RONDE_U32> {};
template <typename T>
  requires(std::is_integral_v<T> && sizeof(T) == 8)
struct BuiltInDType<T> : DType<std::is_signed_v<T> ? RONDE_I64 : RONDE_U64> {};
// The compiler's own type, where it has one; nvcc knows the macro, but not the type.
#if defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__)
template <>
struct BuiltInDType<_Float16> : DType<RONDE_F16> {};
#endif

}  // namespace detail

// The dtype of tensors whose elements are of type T: its member `value`. Specialise it for a type
// of yours, or of another library, that has the bits of a dtype:
//
//   template <>
//   struct ronde::dtype_traits<c10::BFloat16> {
//     static constexpr ronde_dtype value = RONDE_BF16;
//   };
//
// Thread safety: a constant.
template <typename T>
struct dtype_traits : detail::BuiltInDType<T> {};

namespace detail {

template <typename T>
concept HasDType = requires {
  { dtype_traits<T>::value } -> std::convertible_to<ronde_dtype>;
};

constexpr std::size_t bytes_of(ronde_dtype dtype) {
  switch (dtype) {
    case RONDE_U8:
    case RONDE_I8:
    case RONDE_BOOL:
      return 1;
    case RONDE_U16:
    case RONDE_I16:
    case RONDE_F16:
    case RONDE_BF16:
      return 2;
    case RONDE_U32:
    case RONDE_I32:
    case RONDE_F32:
      return 4;
    case RONDE_U64:
    case RONDE_I64:
    case RONDE_F64:
      return 8;
  }
  return 0;
}

template <typename T>
constexpr ronde_dtype dtype_of() {
  static_assert(
      HasDType<T>,
      "Ronde has no dtype for this type: specialise ronde::dtype_traits<T> for it, with a "
      "`static constexpr ronde_dtype value`");
  if constexpr (HasDType<T>) {
    static_assert(sizeof(T) == bytes_of(dtype_traits<T>::value),
                  "ronde::dtype_traits<T>::value is a dtype of another size than T");
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    return dtype_traits<T>::value;
  } else {
    return RONDE_U8;
  }
}

}  // namespace detail
}  // namespace ronde
