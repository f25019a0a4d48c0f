// SPDX-License-Identifier: Apache-2.0
// Looking variables up in lines "NAME=value". Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ronde::runtime {

// The value of a variable; nothing where it is not set or empty, as shells do not tell the two
// apart easily.
[[nodiscard]] inline std::optional<std::string> variable(std::span<const std::string> environment,
                                                         std::string_view name) {
  for (const std::string& line : environment) {
    if (line.size() > name.size() + 1 && line[name.size()] == '=' && line.starts_with(name)) {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace ronde::runtime
