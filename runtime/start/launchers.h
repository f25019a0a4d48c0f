// SPDX-License-Identifier: Apache-2.0
// What launchers tell the processes that they start, each in its own variables: a launcher is a row
// of one table, but for TF_CONFIG, which is JSON. Pure. Only identity.cc and tests use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/start/point.h"

namespace ronde::runtime {

// What the variables of one launcher tell of this process.
struct LaunchInfo {
  std::string launcher;
  std::string said;  // the variables with their values, for an error
  // Their names: the launcher has set them in the process that it started.
  std::vector<std::string> variables;
  std::int32_t rank = -1;  // -1: unknown
  std::int32_t size = -1;
  bool by_mpi = false;  // MPI introduces the ranks
  // An agent (torchrun's) has started this very process: MPI's variables are those of the agent.
  bool by_agent = false;
  // Which of the launcher's jobs this is, where that is known: ranks of other jobs may come to the
  // same meeting point.
  std::string job;
  std::optional<MeetingPoint> point;
  // Where it names no meeting point though it should: what is missing, for an error.
  std::string no_point;
  // It describes processes beside the ranks, too (parameter servers): where MPI introduces all of
  // them, the two need not agree.
  bool of_more_than_ranks = false;
  // Why this process is no rank of the job, though the launcher knows it: "its TF_CONFIG makes it
  // ps 0".
  std::string no_member;
};

using MaybeInfo = base::Result<std::optional<LaunchInfo>>;
using Environment = std::span<const std::string>;

// A launcher: the variables of the ranks that it starts.
struct Launcher {
  std::string_view name;
  // Every rank has both; size may be empty: the launcher does not set it.
  std::string_view rank;
  std::string_view size{};
  // What its ranks have besides: one that is there shows that this launcher has been here.
  std::vector<std::string_view> more{};
  // Other programs use the names of rank and size for something else, so one of them shows a
  // launcher only where something of `more` stands beside it.
  bool common_names = false;
  // Nobody but this launcher sets its rank to more than 0: one such rank shows it, too.
  bool has_later_ranks_alone = false;
  bool by_mpi = false;
  // Adds the rest to rank and size; nullptr: by_mpi.
  base::Status (*complete)(Environment, LaunchInfo&) = nullptr;
};

// In the order in which they count where nothing shows which is inside which; Slurm is the last.
[[nodiscard]] std::span<const Launcher> launchers();

// Returns nothing where the launcher has set nothing, and an error (kInvalidArgument) that names
// the variable and what was expected where it makes no sense.
MaybeInfo info_of(const Launcher& launcher, Environment environment);
MaybeInfo info_of_tf_config(Environment environment);

// What is missing where a launcher has set some of its variables, but not enough: a rank that has
// lost half of them would train alone. Empty: nothing. A size of 1 is enough.
[[nodiscard]] std::string half_set(const Launcher& launcher, Environment environment);

// The limit of ranks that a launcher may name: more are a mistake.
inline constexpr std::int64_t kMostRanks = 1 << 20;

}  // namespace ronde::runtime
