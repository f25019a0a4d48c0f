// SPDX-License-Identifier: Apache-2.0
// The names of checkpoints in their directory.
#include "bindings/trainer/keep/checkpoint_names.h"

#include <charconv>
#include <utility>

namespace ronde::trainer {

namespace {

constexpr std::string_view kStep = "step-";

}  // namespace

std::optional<CheckpointName> parse_checkpoint_name(const std::string& name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const digits = name.data() + kStep.size();
  const char* const end = std::from_chars(digits, name.data() + name.size(), step).ptr;
  std::string ending(end, name.data() + name.size());
  if (name != std::string(kStep) + std::to_string(step) + ending) return std::nullopt;
  if (!ending.empty() && ending[0] != '.') return std::nullopt;
  return CheckpointName{step, std::move(ending)};
}

std::vector<CheckpointName> checkpoint_names_in(FileSystem& files, const std::string& directory) {
  std::vector<CheckpointName> ours;
  for (const std::string& name : names_in(files, directory)) {
    if (auto parsed = parse_checkpoint_name(name)) ours.push_back(std::move(*parsed));
  }
  return ours;
}

std::string checkpoint_path(const std::string& directory, std::uint64_t step) {
  return directory + '/' + std::string(kStep) + std::to_string(step);
}

}  // namespace ronde::trainer
