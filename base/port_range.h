// SPDX-License-Identifier: Apache-2.0
// The TCP ports at which a job may listen (RONDE_PORTS), for those who write firewalls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/numbers.h"
#include "base/status.h"
#include "base/text.h"

namespace ronde::base {

// Thread safety: a value.
struct PortRange {
  std::uint16_t first = 0;  // 0: no range, and the kernel chooses
  std::uint16_t last = 0;

  // "29600-29699"; nothing for other text.
  static std::optional<PortRange> parse(std::string_view text) {
    const std::size_t dash = text.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = parse_number<std::uint16_t>(text.substr(0, dash));
    const auto last = parse_number<std::uint16_t>(text.substr(dash + 1));
    if (!first || !last || *first == 0 || *last < *first) return std::nullopt;
    return PortRange{*first, *last};
  }

  [[nodiscard]] int size() const { return first == 0 ? 0 : last - first + 1; }
  // Counted from 0, round and round.
  [[nodiscard]] std::uint16_t at(int number) const {
    return narrow<std::uint16_t>(first + number % size());
  }
  // None of them could be listened at, the last one for this reason.
  [[nodiscard]] Status exhausted(const Status& why) const {
    return Status::error(
        why.code(),
        "none of the " + std::to_string(size()) + " ports of RONDE_PORTS=" + std::to_string(first) +
            "-" + std::to_string(last) +
            " can be used here: on each host an engine needs 1 for the leader and, over UCX, 1 for "
            "each rank; widen the range (a port is free a minute after its job), or end what has "
            "them ('ss -tan' shows it)",
        why);
  }
};

}  // namespace ronde::base
