// SPDX-License-Identifier: Apache-2.0
// The board: the shared memory of one host. It carries control (who is there, what became
// ready, what was decided, and the first failure) and data, in slots. It knows nothing of names,
// negotiation or works: messages are opaque bytes, entries are numbers. Layout, in order
// (board/layout.h has the offsets):
//
//   header          magic, version, geometry
//   failure         the first failure of any rank
//   ready queue     entries whose last rank arrived: many writers, read by the coordinator
//   doorbells       one per rank
//   presence        one per rank: pid, start time, state, what it does now
//   announcements   per rank: a byte stream to the coordinator
//   decisions       one byte stream from the coordinator to all ranks
//   arrival         one word per plan entry: generation and count
//   arrived         one word per rank and entry, for stall reports
//   tuning          how windows of data are cut: picked by a probe when the engines open
//   slot counters   per rank: which windows of data it has filled and is done with (slots.h)
//   slots           per rank: three buffers of data
//   arenas          per rank: memory that ronde::Buffer gives out (arena.h); nothing until used
//
// Ranks here are positions on this host, from 0; rank 0 is the leader.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/byte_stream.h"
#include "collectives/board/doorbell.h"
#include "collectives/board/geometry.h"
#include "collectives/board/shared_memory.h"

namespace ronde::collectives {

struct Presence {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // of the process, in clock ticks since boot; 0 if unknown
  PresenceState state = PresenceState::kAbsent;
  std::string doing;  // "waiting for 'fc1/weight'"; empty while it changes
};

// Field 22 of /proc/<pid>/stat: together with the pid it names one process and no later one.
base::Result<std::uint64_t> process_start_time(std::int32_t pid);

struct FailureRecord {
  std::int32_t culprit = -1;   // the rank at fault, or -1
  std::int32_t reporter = -1;  // the rank that noticed
  base::Code code = base::Code::kInternal;
  std::string text;   // cut at kFailureTextBytes
  std::string place;  // cut at kFailurePlaceBytes
  // False: the reporter claimed the record and ended before it had written the text.
  bool complete = true;
};

enum class Arrival : std::uint8_t {
  kArrived,
  kLast,   // this call made the count complete: put the entry into the ready queue
  kStale,  // the entry has another generation: send the full request instead
};

// What an arrival word holds.
struct ArrivalCount {
  std::uint32_t generation = 0;
  std::uint32_t count = 0;
};

struct BoardSections;  // board/layout.h
struct SlotWords;

// A rank's access to the board. Copies see the same board and keep its memory mapped.
// Thread safety: every function may be called from any thread, except that set_doing() and each
// stream object belong to one thread at a time, and pop_ready() to the coordinator's agent.
class Board {
 public:
  // Bytes that a board takes. The geometry must be valid (check_geometry).
  static base::Status check_geometry(const BoardGeometry& geometry);
  static base::Bytes size_of(const BoardGeometry& geometry);
  // Makes a board of zeroed memory; done once, by its creator, before anybody attaches.
  static base::Status format(SharedMemory& memory, const BoardGeometry& geometry);
  // event_fds: those of all ranks, by rank.
  static base::Result<Board> attach(std::shared_ptr<SharedMemory> memory, std::int32_t rank,
                                    EventFds event_fds);

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t ranks() const { return geometry_.ranks; }
  [[nodiscard]] const BoardGeometry& geometry() const { return geometry_; }

  // The doorbell of any rank; valid while a copy of this Board lives.
  [[nodiscard]] Doorbell doorbell(std::int32_t rank) const;
  void ring_all() const;

  // Writes this process's pid and start time, and the state kOpen.
  void enter() const;
  void set_state(PresenceState state) const { set_state(rank_, state); }
  // Of another rank: whoever sees it die says so.
  void set_state(std::int32_t rank, PresenceState state) const;
  [[nodiscard]] PresenceState state(std::int32_t rank) const;
  // What this rank does now, in at most kDoingBytes bytes; for the words of a verdict.
  void set_doing(std::string_view text) const;
  [[nodiscard]] Presence presence(std::int32_t rank) const;

  // This rank's stream to the coordinator, and the coordinator's ends of everybody's.
  [[nodiscard]] StreamWriter announce_writer() const;
  [[nodiscard]] StreamReader announce_reader(std::int32_t from) const;
  // The coordinator's stream to all ranks (itself too), and this rank's end of it.
  // `coordinator` is the rank that readers ring when they made room.
  [[nodiscard]] StreamWriter decision_writer() const;
  [[nodiscard]] StreamReader decision_reader(std::int32_t coordinator = 0) const;

  // One more rank is ready for the entry. `expected`: how many there are.
  [[nodiscard]] Arrival arrive(std::int64_t entry, std::uint32_t generation,
                               std::uint32_t expected) const;
  // The coordinator takes a complete entry: (generation, expected) becomes (generation, 0). Before
  // the decision goes out, so that nobody arrives for the next step on the old count.
  void reset(std::int64_t entry, std::uint32_t generation, std::uint32_t expected) const;
  // The coordinator ends a generation: the word becomes (new_generation, 0). Returns how many ranks
  // had arrived; whoever comes later with the old one is told kStale.
  [[nodiscard]] std::uint32_t close_generation(std::int64_t entry,
                                               std::uint32_t new_generation) const;
  [[nodiscard]] ArrivalCount arrival(std::int64_t entry) const;
  // Which ranks have arrived: a hint for reports, not ordered with arrive(). A mark holds how many
  // batches the rank had received, so that one of an earlier step, of a rank that has not got
  // further yet, is known as such. `last_batch`: the last one with this entry, 0 if there was none.
  void mark_arrived(std::int64_t entry, std::uint64_t received_batches) const;
  void unmark_arrived(std::int64_t entry) const;
  [[nodiscard]] bool has_arrived(std::int32_t rank, std::int64_t entry,
                                 std::uint64_t last_batch) const;

  // The last arriver of an entry puts it here (and rings the coordinator). There is room for every
  // entry, and for one more of each rank: a rank that was slow may put an entry here whose
  // generation has been closed since it arrived, beside one that is complete again.
  void push_ready(std::int64_t entry) const;
  [[nodiscard]] std::optional<std::int64_t> pop_ready() const;

  // The leader publishes how windows are cut, once, before any collective; everybody reads it.
  void publish_tuning(const SlotTuning& tuning) const;
  // Nothing until it was published.
  [[nodiscard]] std::optional<SlotTuning> tuning() const;
  // For slots.h: the counters by rank, and the buffers, kSlotBuffers after each other for each
  // rank.
  [[nodiscard]] SlotWords* slot_words() const;
  [[nodiscard]] std::byte* slot_buffers() const;
  // The arena of a rank, as this process sees it: empty if the geometry has none.
  [[nodiscard]] std::span<std::byte> arena(std::int32_t rank) const;

  // The first failure wins: false when there was one before. Rings everybody.
  bool fail(const FailureRecord& record) const;
  // Whether a failure was claimed: one load, for every step of the agent.
  [[nodiscard]] bool failed() const;
  // The failure. One that is claimed and not written yet is waited for, shortly (its writer is
  // between two instructions, or dead): then a record in general words comes back, complete ==
  // false.
  [[nodiscard]] std::optional<FailureRecord> failure() const;

 private:
  Board() = default;
  [[nodiscard]] std::size_t index_of_rank(std::int32_t rank) const;
  [[nodiscard]] std::size_t index_of_entry(std::int64_t entry) const;
  [[nodiscard]] std::atomic<std::uint64_t>& arrived_mark(std::int32_t rank,
                                                         std::int64_t entry) const;
  [[nodiscard]] std::span<std::byte> announce_ring(std::size_t index) const;

  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<const BoardSections> sections_;
  EventFds event_fds_;
  BoardGeometry geometry_;
  std::int32_t rank_ = 0;
};

}  // namespace ronde::collectives
