// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX2 and F16C. This file alone is compiled with its instructions, so that nothing
// in it may be shared with other files; kernels/reduce_impl.h has the rules.
#include <immintrin.h>

#include <cstdint>

#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

struct Machine {
  static constexpr int kBytes = 32;
  using Floats [[gnu::vector_size(kBytes)]] = float;
  using Halves [[gnu::vector_size(kBytes / 2)]] = std::uint16_t;
  using Whole [[gnu::vector_size(kBytes)]] = char;

  [[gnu::always_inline]] static Floats widen_f16(Halves halves) {
    return __builtin_bit_cast(Floats, _mm256_cvtph_ps(__builtin_bit_cast(__m128i, halves)));
  }
  [[gnu::always_inline]] static Halves narrow_f16(Floats floats) {
    return __builtin_bit_cast(
        Halves, _mm256_cvtps_ph(__builtin_bit_cast(__m256, floats), _MM_FROUND_TO_NEAREST_INT));
  }
  // The address must be a multiple of the size.
  [[gnu::always_inline]] static void stream(std::byte* to, Whole vector) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), __builtin_bit_cast(__m256i, vector));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, Halves vector) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), __builtin_bit_cast(__m128i, vector));
  }
  [[gnu::always_inline]] static void finish_streams() { _mm_sfence(); }
};

}  // namespace
}  // namespace ronde::collectives

#include "collectives/kernels/reduce_impl.h"

namespace ronde::collectives {

constexpr KernelTable kAvx2Kernels = make_table();

}  // namespace ronde::collectives
