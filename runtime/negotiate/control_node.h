// SPDX-License-Identifier: Apache-2.0
// What the agent of a leader steps besides its own batches: on the first host the coordinator, on
// the others a relay between the ranks of its host and the coordinator.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"

namespace ronde::runtime {

inline constexpr std::int32_t kCoordinator = 0;  // the rank whose agent steps the coordinator
inline constexpr std::int32_t kLeader = 0;       // the position of a host's leader on its board

// Thread safety: belongs to the agent.
class ControlNode {
 public:
  virtual ~ControlNode() = default;

  // Reads what was announced and decided, and passes it on. data_plane_idle: this rank has executed
  // every batch, so the next one goes at once; otherwise what is ready waits and goes together.
  // Returns how much was done.
  virtual base::Result<int> step(bool data_plane_idle) = 0;

  // Whether tensors of devices stay where they are, however idle the data plane is: enough of them
  // are under way.
  virtual void hold_devices_back(bool /*held*/) {}

  // When something is due without a message; kNever without one.
  [[nodiscard]] virtual base::Instant next_deadline() const = 0;
  // A step() with the data plane idle would publish a batch: what is ready waits for nothing else.
  [[nodiscard]] virtual bool waits_for_idle() const = 0;
  // Everything that was decided has gone out.
  [[nodiscard]] virtual bool drained() const = 0;
};

}  // namespace ronde::runtime
