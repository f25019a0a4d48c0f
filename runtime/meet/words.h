// SPDX-License-Identifier: Apache-2.0
// What the launchers say, one by one, each in its own variables. Pure. Only meet/identity.cc and
// tests use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "runtime/meet/point.h"

namespace ronde::runtime {

// What one launcher says.
struct Word {
  std::string launcher;
  std::string said;
  std::int32_t rank = -1;  // -1: it does not say
  std::int32_t size = -1;
  std::optional<MeetingPoint> point;
  // Where it names no meeting point though it should: what is missing, for an error.
  std::string no_point;
  // It describes processes beside the ranks, too (parameter servers): where MPI introduces all of
  // them, the two need not agree.
  bool of_more_than_ranks = false;
  // Why this process is no rank of the job, though the launcher knows it: "its TF_CONFIG makes it
  // ps 0".
  std::string no_member;
  // An agent (torchrun's) has started this very process: what MPI says is what it said to the
  // agent.
  bool by_agent = false;
};

using MaybeWord = base::Result<std::optional<Word>>;

// Each returns nothing where the launcher says nothing, and an error (kInvalidArgument) that names
// the variable and what was expected where it makes no sense.
MaybeWord word_of_hand(std::span<const std::string> environment);
MaybeWord word_of_mpi(std::span<const std::string> environment);
MaybeWord word_of_torchrun(std::span<const std::string> environment);
MaybeWord word_of_tf_config(std::span<const std::string> environment);
MaybeWord word_of_slurm(std::span<const std::string> environment);

// The first host of a list as Slurm writes it: "node[07-09,12],login" is "node07". Nothing if it is
// no such list.
[[nodiscard]] std::optional<std::string> first_host(const std::string& list);

// Checks that a rank lies below a size; the names are those of the variables.
base::Status check_rank(const std::string& rank_name, std::int64_t rank,
                        const std::string& size_name, std::int64_t size);

// The limit of ranks that a launcher may name: more are a mistake.
inline constexpr std::int64_t kMostRanks = 1 << 20;

}  // namespace ronde::runtime
