// SPDX-License-Identifier: Apache-2.0
// The frame of every segmented algorithm: lanes that share the segments, their buffers in the
// engine's memory, and the step that lets each of them advance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/messages/segment_plan.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/workspace.h"

namespace ronde::collectives {

static_assert(kSegmentsInFlight <= kTagsPerCollective, "a lane has a tag of its own");

// An algorithm derives its lane from this, and adds the lane's state.
template <std::size_t kBuffers>
struct SegmentLane {
  LaneOfSegments of;
  std::array<std::byte*, kBuffers> buffers{};

  [[nodiscard]] int tag(int first_tag) const { return first_tag + static_cast<int>(of.index); }
};

// It owns the lanes, and borrows their buffers from the workspace, which must outlive it.
//
// Thread safety: one thread at a time (whoever has the agent's role).
template <class Lane>
class SegmentLanes {
 public:
  explicit SegmentLanes(Workspace& workspace) : memory_(workspace) {}

  [[nodiscard]] bool is_open() const { return open_; }

  // Makes the lanes for that many segments, with buffers of `buffer` bytes, or none without
  // segments.
  [[nodiscard]] base::Status open(const Transport& transport, std::int64_t segments,
                                  base::Bytes buffer) {
    constexpr std::int64_t kBuffers = std::tuple_size_v<decltype(Lane::buffers)>;
    open_ = true;
    const std::int64_t lanes = lanes_for(segments);
    if (lanes == 0) return {};
    RONDE_RETURN_IF_ERROR(
        memory_.acquire(transport, base::Bytes(lanes * kBuffers * buffer.value())));
    lanes_.resize(static_cast<std::size_t>(lanes));
    std::byte* next = memory_.memory();
    for (std::int64_t index = 0; index < lanes; ++index) {
      Lane& lane = lanes_[static_cast<std::size_t>(index)];
      lane.of = lane_of_segments(segments, index);
      for (std::byte*& memory : lane.buffers) {
        memory = next;
        next += buffer.value();
      }
    }
    return {};
  }

  // The step of the collective: advance(lane) takes a lane a little further and returns whether
  // something happened; is_done(lane) tells that a lane has nothing left to do, and nothing
  // outstanding.
  template <class Advance, class IsDone>
  [[nodiscard]] base::Result<StepResult> step(Advance&& advance, IsDone&& is_done) {
    bool progress = false;
    bool done = true;
    for (Lane& lane : lanes_) {
      RONDE_ASSIGN_OR_RETURN(const auto advanced, advance(lane));
      progress |= advanced;
      done &= is_done(lane);
    }
    if (done) {
      memory_.mark_unreferenced();
      return StepResult::kDone;
    }
    return progress ? StepResult::kProgress : StepResult::kIdle;
  }

 private:
  WorkspaceLease memory_;
  std::vector<Lane> lanes_;
  bool open_ = false;
};

}  // namespace ronde::collectives
