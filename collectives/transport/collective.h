// SPDX-License-Identifier: Apache-2.0
// A collective operation as a state machine that never blocks: the agent steps several side by
// side, and a test steps those of eight ranks in one thread.
#pragma once

#include "base/status.h"

namespace ronde::collectives {

// A collective may use this many tags, counted from the one that it is given.
inline constexpr int kTagsPerCollective = 16;

enum class StepResult {
  kIdle,      // nothing can be done until another rank sends or posts something
  kProgress,  // something was done, and there may be more to do
  kDone,      // finished on this rank: outputs are complete, nothing is outstanding
};

// It reads and writes the user's tensors, the slots of a board or the memory of a workspace, all of
// which must outlive it.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class Collective {
 public:
  virtual ~Collective() = default;

  // Does a bounded amount of work. It must not be called again after an error or kDone. Destroying
  // a collective that has not finished is legal; its workspace memory is parked then.
  virtual base::Result<StepResult> step() = 0;
};

}  // namespace ronde::collectives
