// SPDX-License-Identifier: Apache-2.0
// The values of ronderun's options out of their text; an error is one line for the user. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace ronde::launcher {

// A variable for every rank. Without a value, the rank gets the value it has here.
struct Export {
  std::string name;
  std::optional<std::string> value;
};

// `name` is the option as the user wrote it.
[[nodiscard]] base::Result<std::int64_t> parse_ranks(const std::string& name,
                                                     const std::string& text);
[[nodiscard]] base::Result<std::int64_t> parse_restarts(const std::string& name,
                                                        const std::string& text);
[[nodiscard]] base::Result<base::Nanoseconds> parse_grace(const std::string& name,
                                                          const std::string& text);
[[nodiscard]] base::Result<base::Nanoseconds> parse_window(const std::string& name,
                                                           const std::string& text);
[[nodiscard]] base::Result<Export> parse_export(const std::string& text);
[[nodiscard]] base::Result<std::string> parse_binding(const std::string& text);
[[nodiscard]] base::Result<std::vector<std::string>> parse_words(const std::string& name,
                                                                 const std::string& text);

}  // namespace ronde::launcher
