// SPDX-License-Identifier: Apache-2.0
// The time that a cache line takes from one core to another and back. On a virtual machine it can
// change fourfold within seconds, and all times change with it: so it is measured too.
#pragma once

#include <optional>

namespace ronde::perf {

// Measures it in nanoseconds: the median of several tries between two of the cores this process may
// use; nothing if it may use only one. Takes about half a millisecond; other ranks should be asleep
// meanwhile.
[[nodiscard]] std::optional<double> core_to_core_round_trip();

}  // namespace ronde::perf
