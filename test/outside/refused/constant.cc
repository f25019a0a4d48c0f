// SPDX-License-Identifier: Apache-2.0
// The result of an allreduce in place has to go somewhere.
// says: OutputRange
#include <ronde/ronde.hpp>
#include <vector>

#ifdef RIGHT
using Values = std::vector<float>;
#else
using Values = const std::vector<float>;
#endif

void use(ronde::Engine& engine, Values& values) { engine.allreduce("g", values).wait(); }
