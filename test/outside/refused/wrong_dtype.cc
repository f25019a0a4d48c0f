// SPDX-License-Identifier: Apache-2.0
// A trait that would have the engine read twice the memory.
// says: a dtype of another size than T
#include <cstdint>
#include <ronde/ronde.hpp>
#include <vector>

struct Half {
  std::uint16_t bits;
};
template <>
struct ronde::dtype_traits<Half> {
#ifdef RIGHT
  static constexpr ronde_dtype value = RONDE_F16;
#else
  static constexpr ronde_dtype value = RONDE_F32;
#endif
};

void use(ronde::Engine& engine, std::vector<Half>& values) { engine.allreduce("g", values).wait(); }
