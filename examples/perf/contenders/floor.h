// SPDX-License-Identifier: Apache-2.0
// Bare flags as a contender: what the cores of one host take to show each other a flag and small
// vectors, with no runtime around it. No allreduce over shared memory can be much faster.
#pragma once

#include <memory>

#include "examples/perf/contenders/contender.h"

namespace ronde::perf {

// Collective. Throws UsageError over several hosts.
[[nodiscard]] std::unique_ptr<Contender> make_floor(Engine& engine);

}  // namespace ronde::perf
