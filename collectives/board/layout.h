// SPDX-License-Identifier: Apache-2.0
// The layout of a board: the words that processes share, and their offsets as a pure function of
// the geometry. Only the sources of board/, in_host/slots.cc and tests of the layout use it.
// Whoever changes anything here raises kBoardVersion.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "collectives/board/byte_stream.h"
#include "collectives/board/doorbell.h"
#include "collectives/board/geometry.h"
#include "collectives/board/message_words.h"

namespace ronde::collectives {

inline constexpr std::uint64_t kBoardMagic = 0x6472616f42'6e6452;  // "RndBoard"
inline constexpr std::uint32_t kBoardVersion = 10;

// Processes share these words, so an atomic must be one instruction and not a lock in one process.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint8_t>::is_always_lock_free);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free &&
              std::atomic_ref<std::uint64_t>::required_alignment == alignof(std::uint64_t));

struct BoardHeader {
  std::atomic<std::uint64_t> magic{0};  // written last, when the board is ready
  std::uint32_t version = 0;
  BoardGeometry geometry;
};

enum class FailureState : std::uint32_t { kNone, kClaimed, kPublished };

struct alignas(kCacheLinePair) FailureWords {
  std::atomic<FailureState> state{FailureState::kNone};
  // The rest is written between claim and publication, and read after publication.
  std::int32_t culprit = -1;
  std::int32_t reporter = -1;
  base::Code code = base::Code::kOk;
  std::uint32_t text_size = 0;
  std::uint32_t place_size = 0;
  std::array<char, kFailureTextBytes> text{};
  std::array<char, kFailurePlaceBytes> place{};
};

struct ReadyWords {
  alignas(kCacheLinePair) std::atomic<std::uint64_t> tail{0};  // the next slot to fill; writers
  alignas(kCacheLinePair) std::atomic<std::uint64_t> head{0};  // the next slot to read; coordinator
};

struct alignas(kCacheLinePair) PresenceWords {
  std::atomic<std::int32_t> pid{0};
  std::atomic<PresenceState> state{PresenceState::kAbsent};
  std::atomic<std::uint64_t> start_time{0};
  // A sequence lock: the version is odd while the text is being written.
  std::atomic<std::uint64_t> activity_version{0};
  std::array<std::atomic<std::uint64_t>, kActivityBytes / sizeof(std::uint64_t)> activity{};
};

struct alignas(kCacheLinePair) TuningWords {
  std::atomic<std::uint32_t> published{0};
  SlotTuning tuning;  // written before it is published
  // Where a board with larger slots lies, which takes their place: 0: nobody has said; 1: nowhere;
  // else 2 more than the number.
  std::atomic<std::uint64_t> larger{0};
};

// The slot words of one rank: what it posts, and on a line of its own the flag that others read
// after every post.
struct alignas(kCacheLinePair) SlotWords {
  std::atomic<std::uint64_t> counter{0};
  std::array<std::array<std::byte, kSlotInlineBytes>, kSlotBuffers> inline_bytes{};
  alignas(kCacheLinePair) std::atomic<std::uint32_t> wants_rings{0};
};
static_assert(sizeof(std::atomic<std::uint64_t>) + kSlotBuffers * kSlotInlineBytes <= 64,
              "the counter and what travels beside it share a cache line");

// Pointers to the board's sections. The memory is the board's.
struct BoardSections {
  BoardHeader* header = nullptr;
  FailureWords* failure = nullptr;
  ReadyWords* ready = nullptr;
  std::span<std::atomic<std::uint32_t>> ready_slots;  // entry + 1; 0 is empty
  std::span<DoorbellWords> doorbells;
  std::span<PresenceWords> presence;
  std::span<StreamWriterWords> announce_writers;  // by rank
  std::span<StreamReaderWords> announce_readers;  // by rank; read by the coordinator
  std::span<std::byte> announce_rings;            // by rank
  StreamWriterWords* decision_writer = nullptr;
  std::span<StreamReaderWords> decision_readers;  // by rank
  std::span<std::byte> decision_ring;
  // By entry: the generation, whether some rank's step has a number, and the count.
  std::span<std::atomic<std::uint64_t>> arrival;
  // By rank, then entry, a mark and a step's number; a row is padded. These are plain words, which
  // live where zeroed memory is mapped: an atomic has to be constructed, and that would write to
  // every page of the section, on the leader's NUMA node. Used through std::atomic_ref, each rank
  // touches its row first.
  std::span<std::uint64_t> arrived;
  std::size_t arrived_row = 0;
  // Likewise, when a rank has arrived, and how long it had waited before.
  std::span<std::uint64_t> arrival_times;
  std::size_t arrival_times_row = 0;
  TuningWords* tuning = nullptr;
  std::span<MessageWords> message_words;  // by rank
  // By sender, then receiver: where their channel lies; plain words, as `arrived` has.
  std::span<std::uint64_t> message_places;
  std::span<std::byte> lines;         // plain words too
  std::span<SlotWords> slot_words;    // by rank
  std::span<std::byte> slot_buffers;  // by rank, kSlotBuffers each; on pages of their own
  std::span<std::byte> arenas;        // by rank; last, since most of it is never touched
  std::size_t total = 0;
};

// Returns the sections of a board whose memory begins at `memory`; with nullptr only `total` is
// set. Touches no memory.
[[nodiscard]] BoardSections lay_out(const BoardGeometry& geometry, std::byte* memory);

}  // namespace ronde::collectives
