// SPDX-License-Identifier: Apache-2.0
// The engine would use the memory of a vector that is gone.
// says: borrowed_range
#include <ronde/ronde.hpp>
#include <vector>

void use(ronde::Engine& engine) {
#ifdef RIGHT
  std::vector<float> values(3);
  engine.allreduce("g", values).wait();
#else
  engine.allreduce("g", std::vector<float>(3)).wait();
#endif
}
