// SPDX-License-Identifier: Apache-2.0
// What the launchers say, each in its own variables: a launcher is a row of one table, but for
// TF_CONFIG, whose words are JSON. Pure. Only identity.cc and tests use it.
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

// What one launcher says.
struct Word {
  std::string launcher;
  std::string said;
  // The variables that say it; whoever started the process that has them set the values.
  std::vector<std::string> variables;
  std::int32_t rank = -1;  // -1: it does not say
  std::int32_t size = -1;
  bool by_mpi = false;  // MPI introduces the ranks
  // An agent (torchrun's) has started this very process: what MPI says is what it said to the
  // agent.
  bool by_agent = false;
  // Which of its jobs this is, where the launcher says that: ranks of other jobs may come to the
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

using MaybeWord = base::Result<std::optional<Word>>;
using Environment = std::span<const std::string>;

// A launcher: the variables of the ranks that it starts.
struct Launcher {
  std::string_view name;
  // Every rank has both; size may be empty: the launcher does not say it.
  std::string_view rank;
  std::string_view size{};
  // What its ranks have besides: one that is there shows that this launcher has been here.
  std::vector<std::string_view> more{};
  // Anybody may use the names of rank and size for something else, so one of them shows a launcher
  // only where something of `more` stands beside it.
  bool common_names = false;
  bool by_mpi = false;
  // Completes a word that has rank and size; nullptr: by_mpi.
  base::Status (*complete)(Environment, Word&) = nullptr;
};

// In the order in which they count where nothing shows which is inside which; Slurm is the last.
[[nodiscard]] std::span<const Launcher> launchers();

// Returns nothing where the launcher says nothing, and an error (kInvalidArgument) that names the
// variable and what was expected where it makes no sense.
MaybeWord word_of(const Launcher& launcher, Environment environment);
MaybeWord word_of_tf_config(Environment environment);

// What is missing where a launcher has said something, but not enough: a rank that has lost half of
// its words would train alone. Empty: nothing. A size of 1 is enough.
[[nodiscard]] std::string half_said(const Launcher& launcher, Environment environment);

// The limit of ranks that a launcher may name: more are a mistake.
inline constexpr std::int64_t kMostRanks = 1 << 20;

}  // namespace ronde::runtime
