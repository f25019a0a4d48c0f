// SPDX-License-Identifier: Apache-2.0
// The line between hosts as a contender: what TCP alone takes for the bytes that every host must
// send and receive in an allreduce, 2 (n - 1) / n of the vector over n hosts. No allreduce can be
// faster.
#pragma once

#include <memory>

#include "examples/perf/contenders/contender.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

// The first rank of each host sends to that of the next host and receives from that of the one
// before, at the same time, over one connection each; the other ranks do nothing. Collective.
// Throws UsageError on one host, and on every rank if a host cannot reach the next.
[[nodiscard]] std::unique_ptr<Contender> make_line(Engine& engine);

}  // namespace ronde::perf
