// SPDX-License-Identifier: Apache-2.0
// Words as a shell reads them. Pure.
#pragma once

#include <span>
#include <string>

namespace ronde::launcher {

// Joins words to one line that a POSIX shell reads back as the same words.
[[nodiscard]] std::string shell_quoted(std::span<const std::string> words);

}  // namespace ronde::launcher
