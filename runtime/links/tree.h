// SPDX-License-Identifier: Apache-2.0
// The tree along which control messages travel between hosts: announcements up to host 0, decisions
// down from it. Every host has a parent and a bounded number of children, however large the job is.
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ronde::runtime {

// The hosts are numbered level by level: the children of host h are h * fan_in + 1 and those after
// it. A fan-in of hosts - 1 or more is a star.
//
// Thread safety: a value.
class HostTree {
 public:
  static constexpr std::int32_t kRoot = 0;
  static constexpr std::int32_t kFanIn = 16;

  explicit HostTree(std::int32_t hosts, std::int32_t fan_in = kFanIn)
      : hosts_(hosts), fan_in_(fan_in) {}

  [[nodiscard]] std::int32_t hosts() const { return hosts_; }
  // Call it for any host but the root.
  [[nodiscard]] std::int32_t parent_of(std::int32_t host) const { return (host - 1) / fan_in_; }
  [[nodiscard]] std::vector<std::int32_t> children_of(std::int32_t host) const {
    const std::int64_t first = std::int64_t{host} * fan_in_ + 1;
    const std::int64_t end = std::min<std::int64_t>(first + fan_in_, hosts_);
    std::vector<std::int32_t> children;
    for (std::int64_t child = first; child < end; ++child) {
      children.push_back(static_cast<std::int32_t>(child));
    }
    return children;
  }

 private:
  std::int32_t hosts_;
  std::int32_t fan_in_;
};

}  // namespace ronde::runtime
