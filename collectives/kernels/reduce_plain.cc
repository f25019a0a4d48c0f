// SPDX-License-Identifier: Apache-2.0
// The kernels for every processor: vectors of 16 bytes, which each 64-bit architecture has, and
// conversions of f16 by arithmetic.
#include <cstdint>

#include "collectives/kernels/float16.h"
#include "collectives/kernels/table.h"

namespace ronde::collectives {
namespace {

struct Machine {
  static constexpr int kBytes = 16;
  using Floats [[gnu::vector_size(kBytes)]] = float;
  using Ints [[gnu::vector_size(kBytes)]] = std::int32_t;
  using Bits [[gnu::vector_size(kBytes)]] = std::uint32_t;
  using Halves [[gnu::vector_size(kBytes / 2)]] = std::uint16_t;
  using Whole [[gnu::vector_size(kBytes)]] = char;

  [[gnu::always_inline]] static Floats widen_f16(Halves halves) {
    const Bits wide = __builtin_convertvector(halves, Bits);
    return __builtin_bit_cast(Floats, bits_of_f16_widened<Ints, Floats>(wide));
  }
  [[gnu::always_inline]] static Halves narrow_f16(Floats floats) {
    const Bits bits = __builtin_bit_cast(Bits, floats);
    return __builtin_convertvector(bits_of_f32_as_f16<Ints, Floats>(bits), Halves);
  }
  // Stores of this width are slower around the caches than through them.
  [[gnu::always_inline]] static void stream(std::byte* to, Whole vector) {
    __builtin_memcpy(to, &vector, sizeof(vector));
  }
  [[gnu::always_inline]] static void stream(std::byte* to, Halves vector) {
    __builtin_memcpy(to, &vector, sizeof(vector));
  }
  [[gnu::always_inline]] static void finish_streams() {}
};

}  // namespace
}  // namespace ronde::collectives

#include "collectives/kernels/reduce_impl.h"

namespace ronde::collectives {

constexpr KernelTable kPlainKernels = make_table();

}  // namespace ronde::collectives
