// SPDX-License-Identifier: Apache-2.0
// A process set as the parts of a rank see it: a job of fewer ranks, inside another one.
#pragma once

#include <memory>

#include "base/job_shape.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/transport/transport.h"
#include "runtime/job/job.h"
#include "runtime/member/rank_context.h"

namespace ronde::runtime {

// What a set's job is made of. Thread safety: a value.
struct SetJobParts {
  collectives::Board board;                           // within that of the job
  std::unique_ptr<collectives::Transport> transport;  // nullptr where it needs none
  SlotGrowth growth;
  std::unique_ptr<SetLinks> links;  // of the leader of a host, over several
};

// The ranks of the set on the hosts of the job.
[[nodiscard]] base::JobShape shape_of_set(const base::JobShape& job, const SetIdentity& set);

// `job` must outlive it.
std::unique_ptr<Job> make_set_job(Job& job, const SetIdentity& set, SetJobParts parts);

}  // namespace ronde::runtime
