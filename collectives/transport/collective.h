// SPDX-License-Identifier: Apache-2.0
// A collective operation as a state machine that never blocks: the agent steps many of them side by
// side, and a test steps those of eight ranks in one thread.
#pragma once

#include "base/status.h"

namespace ronde::collectives {

// How many tags, counted from the one it is given, a collective may use.
inline constexpr int kTagsPerCollective = 16;

enum class StepResult {
  kIdle,      // nothing to do until a message arrives
  kProgress,  // something was done; there may be more
  kDone,      // finished on this rank: outputs are complete, nothing is outstanding
};

// Thread safety: one thread at a time (whoever has the agent's role).
class Collective {
 public:
  virtual ~Collective() = default;

  // Does a bounded amount of work. After an error or kDone it must not be called again. Destroying
  // a collective that has not finished is legal; its memory is then parked in the workspace.
  virtual base::Result<StepResult> step() = 0;
};

}  // namespace ronde::collectives
