// SPDX-License-Identifier: Apache-2.0
// The environments with which a process and those above it were started: the variables of
// a launcher are in all that is below it, and not in itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/start/launchers.h"

namespace ronde::runtime {

struct Ancestry {
  // The first item is this process's environment, the next one its parent's, and so on upwards. The
  // list ends before a process whose environment cannot be read, as that of another user.
  std::vector<std::vector<std::string>> started_with;

  // The index of the nearest process that was not started with these variables: 0 where this
  // process has set them itself. The length of the list where every process in it was started with
  // them.
  [[nodiscard]] std::size_t distance_of(const std::vector<std::string>& variables,
                                        Environment environment) const;
};

// From /proc. Never fails: what it cannot read it leaves out.
[[nodiscard]] Ancestry ancestry_of_this_process();

// What an engine of a job of several ranks leaves in the environment of its process, so that a
// child, which inherits the variables of the rank's launcher, knows that they are not its own.
struct RankMark {
  static constexpr const char* kVariable = "RONDE_RANK_PROCESS";

  std::int64_t pid = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::string said;  // by the rank's launcher

  [[nodiscard]] std::string text() const;
  static std::optional<RankMark> parse(const std::string& text);
};

}  // namespace ronde::runtime
