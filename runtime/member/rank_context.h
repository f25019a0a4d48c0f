// SPDX-License-Identifier: Apache-2.0
// What the parts of a rank share, and none of them owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/negotiate/control_node.h"
#include "runtime/negotiate/set_agreement.h"

namespace ronde::runtime {

// Which process set a rank belongs to. Thread safety: a value.
struct SetIdentity {
  std::int32_t number = 0;
  std::string name;
  std::vector<std::int32_t> ranks;  // by rank of the set: which of the job it is
};

class Timeline;

// Thread safety: a value; what it refers to outlives it.
struct RankContext {
  collectives::Board board;  // of this host
  const base::JobShape& shape;
  std::int32_t rank;
  const base::Config& config;
  const base::Clock& clock;
  const base::Log& log;
  const SetIdentity* set = nullptr;  // nullptr: the whole job
  Timeline* timeline = nullptr;      // the rank's, of its sets too; nullptr: it has none

  [[nodiscard]] bool leads() const { return board.rank() == kLeader; }
  [[nodiscard]] std::int32_t rank_at(std::int32_t position) const {
    return shape.ranks_of(shape.host_of(rank))[base::narrow<std::size_t>(position)];
  }
  // Which rank of the job a rank of the set is; what is below 0 stays.
  [[nodiscard]] std::int32_t rank_of_job(std::int32_t of_set) const {
    return set == nullptr || of_set < 0 ? of_set : set->ranks[base::narrow<std::size_t>(of_set)];
  }
  // An error with the name of the set before it, whose own numbers its ranks have.
  [[nodiscard]] base::Status told(const base::Status& why) const {
    if (set == nullptr || why.ok()) return why;
    const std::string phrase = phrase_within_set(set->name, set->ranks);
    if (why.message().starts_with(phrase)) return why;
    return base::Status::remote(why.code(), phrase + ": " + why.message(), why.place(),
                                why.rank().value_or(-1));
  }
};

}  // namespace ronde::runtime
