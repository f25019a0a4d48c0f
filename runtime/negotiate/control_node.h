// SPDX-License-Identifier: Apache-2.0
// The interface of what a leader's agent steps besides its own batches: on the first host the
// coordinator, on the others a relay between the ranks of its host and the coordinator.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"

namespace ronde::runtime {

inline constexpr std::int32_t kCoordinator = 0;  // the rank whose agent steps the coordinator
inline constexpr std::int32_t kLeader = 0;       // the position of a host's leader on its board

// Thread safety: none; only the agent uses it. No function blocks.
class ControlNode {
 public:
  virtual ~ControlNode() = default;

  // Reads announcements and decisions, and passes them on. data_plane_idle: this rank has executed
  // every batch, so the next one is sent at once; otherwise ready tensors wait and go together.
  // Returns how many things it did; an error ends the job.
  virtual base::Result<int> step(bool data_plane_idle) = 0;

  // held: no tensor of a device is put into a batch, however idle the data plane is, because enough
  // of them are in progress.
  virtual void hold_devices_back(bool /*held*/) {}

  // When step() must be called even without a new message; kNever: not at all.
  [[nodiscard]] virtual base::Instant next_deadline() const = 0;
  // True when step() with an idle data plane would publish a batch, because ready tensors wait for
  // nothing else.
  [[nodiscard]] virtual bool waits_for_idle() const = 0;
  // Whether some rank may still send or take a message that must go through this node.
  [[nodiscard]] virtual bool may_pass_messages() const { return false; }
  // True when everything that was decided has been written to the ranks here and to the neighbours.
  [[nodiscard]] virtual bool drained() const = 0;
};

}  // namespace ronde::runtime
