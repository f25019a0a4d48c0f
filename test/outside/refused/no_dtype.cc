// SPDX-License-Identifier: Apache-2.0
// The message says what to write for a type of one's own.
// says: specialise ronde::dtype_traits<T>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <vector>

struct Half {
  std::uint16_t bits;
};
#ifdef RIGHT
template <>
struct ronde::dtype_traits<Half> {
  static constexpr ronde_dtype value = RONDE_F16;
};
#endif

void use(ronde::Engine& engine, std::vector<Half>& values) { engine.allreduce("g", values).wait(); }
