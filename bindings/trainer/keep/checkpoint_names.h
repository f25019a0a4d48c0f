// SPDX-License-Identifier: Apache-2.0
// The names of checkpoints in their directory: "step-<step>" of a complete one, and with a suffix
// of one that is being written, being replaced, or damaged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/trainer/keep/file_system.h"

namespace ronde::trainer {

inline constexpr std::string_view kUnfinishedEnding = ".tmp";
inline constexpr std::string_view kReplacedEnding = ".old.tmp";
inline constexpr std::string_view kDamagedEnding = ".damaged";

struct CheckpointName {
  std::uint64_t step;
  std::string ending;  // empty: of a complete one
};

// Empty for a name that is none of these.
[[nodiscard]] std::optional<CheckpointName> parse_checkpoint_name(const std::string& name);
// All of a directory, in no order.
[[nodiscard]] std::vector<CheckpointName> checkpoint_names_in(FileSystem& files,
                                                              const std::string& directory);
// "<directory>/step-<step>".
[[nodiscard]] std::string checkpoint_path(const std::string& directory, std::uint64_t step);

}  // namespace ronde::trainer
