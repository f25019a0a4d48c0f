// SPDX-License-Identifier: Apache-2.0
// The sizes and states of a board, which its users, its layout and its slots have in common. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/types.h"

namespace ronde::collectives {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct BoardGeometry {
  std::int32_t ranks = 1;
  std::int64_t announce_bytes = 256 << 10;  // ring of each rank's stream to the coordinator
  std::int64_t decision_bytes = 1 << 20;    // ring of the coordinator's stream to all
  std::int64_t entries = 0;                 // capacity of the plan
  std::int64_t slot_bytes = 320 << 10;      // each of a rank's slot buffers
  std::int64_t line_bytes = 0;              // lines for calls that meet often (in_host/lines.h)
  std::int64_t arena_bytes = 0;             // a rank's arena; whole pages

  friend bool operator==(const BoardGeometry&, const BoardGeometry&) = default;
};

enum class PresenceState : std::uint32_t { kAbsent, kOpen, kClosing, kClosed, kDead };

// The text of a failure, its place and the activity of a rank are cut at these lengths.
inline constexpr std::size_t kFailureTextBytes = 896;
inline constexpr std::size_t kFailurePlaceBytes = 96;
inline constexpr std::size_t kActivityBytes = 64;

// A rank has a slot buffer that is filled, one that is summed and one that is emptied.
inline constexpr std::int64_t kSlotBuffers = 3;
// The bytes of a window that can travel beside a rank's counter, in its cache line.
inline constexpr std::size_t kSlotInlineBytes = 16;

// A rank needs so much for its 32 lines of 4 KiB, whose layout is in in_host/lines.h.
inline constexpr std::int64_t kLineBytesOfRank = 264 << 10;

// How windows are cut and stored; every choice gives the same bits.
struct SlotTuning {
  std::int64_t piece_bytes = 64 << 10;
  StoreKind store = StoreKind::kTemporal;

  friend bool operator==(const SlotTuning&, const SlotTuning&) = default;
};

}  // namespace ronde::collectives
