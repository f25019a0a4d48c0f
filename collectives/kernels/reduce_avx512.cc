// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX-512 (F, BW, VL, DQ). This file alone is compiled with its instructions, so
// that nothing in it may be shared with other files; kernels/reduce_impl.h has the rules.
#include <immintrin.h>

#include <cstdint>

#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

struct Machine {
  static constexpr int kBytes = 64;
  using Floats [[gnu::vector_size(kBytes)]] = float;
  using Halves [[gnu::vector_size(kBytes / 2)]] = std::uint16_t;
  using Whole [[gnu::vector_size(kBytes)]] = char;

  // These use the forms with a mask, since g++ 12 sees phantom uninitialised reads in the others
  // (GCC bug 105593).
  static constexpr __mmask16 kAll = 0xffff;
  [[gnu::always_inline]] static Floats widen_f16(Halves halves) {
    return __builtin_bit_cast(Floats,
                              _mm512_maskz_cvtph_ps(kAll, __builtin_bit_cast(__m256i, halves)));
  }
  [[gnu::always_inline]] static Halves narrow_f16(Floats floats) {
    return __builtin_bit_cast(
        Halves,
        _mm512_maskz_cvtps_ph(kAll, __builtin_bit_cast(__m512, floats), _MM_FROUND_TO_NEAREST_INT));
  }
  // The address must be a multiple of the size.
  [[gnu::always_inline]] static void stream(std::byte* to, Whole vector) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), __builtin_bit_cast(__m512i, vector));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, Halves vector) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), __builtin_bit_cast(__m256i, vector));
  }
  [[gnu::always_inline]] static void finish_streams() { _mm_sfence(); }
};

}  // namespace
}  // namespace ronde::collectives

#include "collectives/kernels/reduce_impl.h"

namespace ronde::collectives {

constexpr KernelTable kAvx512Kernels = make_table();

}  // namespace ronde::collectives
