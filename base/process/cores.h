// SPDX-License-Identifier: Apache-2.0
// How many cores this process may use: what its affinity mask and its container's quota allow.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ronde::base {

// The processors of this process's affinity mask.
[[nodiscard]] std::vector<int> allowed_processors();

// The whole cores' worth of time that a cgroup grants, at least 1; `fallback` without a limit. The
// text is that of the file cpu.max: "150000 100000", "max 100000". Pure.
[[nodiscard]] std::int64_t cores_of_quota(std::string_view cpu_max, std::int64_t fallback);

// The smallest quota of this process's cgroup and the ones above it, as far as they can be seen;
// `cores` without any.
[[nodiscard]] std::int64_t cores_of_cgroups(std::int64_t cores);

// The cores that processes may use together, at least 1: all the processors that one of their
// affinity masks holds, as far as the quota of this process's cgroup reaches.
[[nodiscard]] std::int64_t cores_of_masks(const std::vector<std::vector<int>>& masks);

}  // namespace ronde::base
