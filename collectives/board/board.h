// SPDX-License-Identifier: Apache-2.0
// The board: the shared memory of one host. It carries control (which ranks are present, what
// became ready, what was decided, and the first failure) and data, in slots. It knows nothing of
// names, negotiation or works: messages are opaque bytes, entries are numbers. Its sections lie in
// this order (board/layout.h has the offsets):
//
//   header          magic, version, geometry
//   failure         the first failure of any rank
//   ready queue     entries whose last rank arrived: many writers, read by the coordinator
//   doorbells       one per rank
//   presence        one per rank: pid, start time, state, present activity
//   announcements   per rank: a byte stream to the coordinator
//   decisions       one byte stream from the coordinator to all ranks
//   arrival         one word per plan entry: generation and count
//   arrived         two words per rank and entry, for stall reports
//   arrival times   two words per rank and entry: who is late, and for timelines
//   tuning          how windows of data are cut: picked by a probe when the engines open
//   messages        what ranks tell each other of their messages, and where their channels lie
//   lines           where small calls by name meet once they have been made often
//   slot counters   per rank: which windows of data it has filled and finished (in_host/slots.h)
//   slots           per rank: three buffers of data
//   arenas          per rank: memory that ronde::Buffer allocates (arena.h); no pages until used
//
// Ranks here are positions on this host, from 0; rank 0 is the leader.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/byte_stream.h"
#include "collectives/board/doorbell.h"
#include "collectives/board/geometry.h"
#include "collectives/board/message_words.h"
#include "collectives/board/shared_memory.h"

namespace ronde::collectives {

struct Presence {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // when the process started, in clock ticks since boot; 0: unknown
  PresenceState state = PresenceState::kAbsent;
  std::string activity;  // "waiting for 'fc1/weight'"; empty while it changes
};

// Reads field 22 of /proc/<pid>/stat: together with the pid it names one process and no later one.
base::Result<std::uint64_t> process_start_time(std::int32_t pid);

struct FailureRecord {
  std::int32_t culprit = -1;   // the rank at fault, or -1
  std::int32_t reporter = -1;  // the rank that noticed the failure
  base::Code code = base::Code::kInternal;
  std::string text;   // cut at kFailureTextBytes
  std::string place;  // cut at kFailurePlaceBytes
  // False if the reporter claimed the record and ended before it had written the text.
  bool complete = true;
};

enum class Arrival : std::uint8_t {
  kArrived,
  kLast,   // this call made the count complete: put the entry into the ready queue
  kStale,  // the entry has another generation: send the full request instead
};

// The contents of an arrival word.
struct ArrivalCount {
  std::uint32_t generation = 0;
  std::uint32_t count = 0;
  bool numbered = false;  // a rank that has arrived has given its step a number
};

struct BoardSections;  // board/layout.h
struct SlotWords;

struct BoardPlace;

// A rank's access to the board. Copies refer to the same board and share the ownership of its
// mapping. Functions touch the board alone; only those that ring make a system call.
//
// Thread safety: every function may be called from any thread, except that set_activity() and each
// stream object belong to one thread at a time, and pop_ready() to the coordinator's agent.
class Board {
 public:
  // Returns an error for a geometry that no board can have.
  static base::Status check_geometry(const BoardGeometry& geometry);
  // The bytes that a board takes. The geometry must be valid (check_geometry).
  static base::Bytes size_of(const BoardGeometry& geometry);
  // The same by parts: what all ranks share, and then the arena of each, if it has any.
  static std::vector<base::Bytes> parts_of(const BoardGeometry& geometry);
  // Makes a board of zeroed memory. Its creator calls this once, before any rank attaches.
  static base::Status format(SharedMemory& memory, const BoardGeometry& geometry);
  // The board of this memory, seen from `rank`. `event_fds` has those of all ranks, by rank.
  static base::Result<Board> attach(std::shared_ptr<SharedMemory> memory, std::int32_t rank,
                                    EventFds event_fds);

  // A board inside the memory of another one, for some of its ranks: positions[r] is where rank r
  // is there. It has streams, a plan and slots of its own. Doorbells, processes, arenas and the
  // failure are those of `parent`, but for fail_alone(); `told` says a failure as the ranks of that
  // one read it.
  using Told = std::function<FailureRecord(const FailureRecord&)>;
  // Makes one in zeroed memory, which begins on a page and has size_of(geometry) bytes; arenas of
  // 0 bytes.
  static base::Status format_within(std::span<std::byte> memory, const BoardGeometry& geometry);
  static base::Result<Board> within(const Board& parent, std::span<std::byte> memory,
                                    std::int32_t rank, std::vector<std::int32_t> positions,
                                    Told told);

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t ranks() const { return geometry_.ranks; }
  [[nodiscard]] const BoardGeometry& geometry() const { return geometry_; }

  // The doorbell of any rank; it is valid while a copy of this Board lives.
  [[nodiscard]] Doorbell doorbell(std::int32_t rank) const;
  // Rings the doorbells of all ranks, this one's too.
  void ring_all() const;

  // Writes this process's pid and start time, and the state kOpen.
  void enter() const;
  void set_state(PresenceState state) const { set_state(rank_, state); }
  // Sets the state of another rank: the rank that sees it die marks it dead.
  void set_state(std::int32_t rank, PresenceState state) const;
  [[nodiscard]] PresenceState state(std::int32_t rank) const;
  // Publishes what this rank does now, for the text of a verdict; cut at kActivityBytes bytes.
  void set_activity(std::string_view text) const;
  [[nodiscard]] Presence presence(std::int32_t rank) const;

  // This rank's end of its stream to the coordinator, and the coordinator's end of that of `from`.
  [[nodiscard]] StreamWriter announce_writer() const;
  [[nodiscard]] StreamReader announce_reader(std::int32_t from) const;
  // The coordinator's end of its stream to all ranks (itself too), and this rank's end of it.
  // `coordinator` is the rank that readers ring when they made room.
  [[nodiscard]] StreamWriter decision_writer() const;
  [[nodiscard]] StreamReader decision_reader(std::int32_t coordinator = 0) const;

  // Counts this rank as ready for the entry. `expected` is the number of ranks that arrive;
  // `numbered`: the step that mark_arrived() has left is to be compared.
  [[nodiscard]] Arrival arrive(std::int64_t entry, std::uint32_t generation, std::uint32_t expected,
                               bool numbered = false) const;
  // The coordinator takes a complete entry: (generation, expected) becomes (generation, 0). It does
  // so before it sends the decision, so that no rank arrives for the next step on the old count.
  void reset(std::int64_t entry, std::uint32_t generation, std::uint32_t expected) const;
  // The coordinator ends a generation: the word becomes (new_generation, 0). Returns how many ranks
  // had arrived; arrive() with the old generation returns kStale from then on.
  [[nodiscard]] std::uint32_t close_generation(std::int64_t entry,
                                               std::uint32_t new_generation) const;
  [[nodiscard]] ArrivalCount arrival(std::int64_t entry) const;
  // Marks tell which ranks have arrived: a hint for reports, not ordered with arrive(). A mark
  // holds how many batches the rank had received, so that has_arrived() recognises a mark of an
  // earlier step. `last_batch` is the last batch that had this entry, 0 if there was none. With it
  // goes what is there for whoever has seen the rank's arrive(): a word about the step, the time,
  // and how long the rank had waited for others before.
  void mark_arrived(std::int64_t entry, std::uint64_t received_batches, std::uint64_t step = 0,
                    base::Instant time = {}, base::Nanoseconds waited = {}) const;
  void unmark_arrived(std::int64_t entry) const;
  [[nodiscard]] bool has_arrived(std::int32_t rank, std::int64_t entry,
                                 std::uint64_t last_batch) const;
  [[nodiscard]] std::uint64_t step_of(std::int32_t rank, std::int64_t entry) const;
  // When the rank has arrived at the entry last, by the clock of this host; 0: it never has.
  [[nodiscard]] base::Instant arrival_time(std::int32_t rank, std::int64_t entry) const;
  [[nodiscard]] base::Nanoseconds waited_before(std::int32_t rank, std::int64_t entry) const;

  // The ready queue: the last arriver of an entry puts it there (and rings the coordinator). It has
  // room for every entry, and for one more of each rank: a slow rank may add an entry whose
  // generation has been closed since it arrived, beside one that is complete again.
  void push_ready(std::int64_t entry) const;
  [[nodiscard]] std::optional<std::int64_t> pop_ready() const;

  // The leader publishes how windows are cut, once, before any collective; all ranks read it.
  void publish_tuning(const SlotTuning& tuning) const;
  // The published tuning; nullopt until then.
  [[nodiscard]] std::optional<SlotTuning> tuning() const;
  // Messages between two ranks: what each rank tells the others, and where in the arena of `from`
  // its channel to `to` lies, in bytes and 1 more; 0: there is none yet.
  [[nodiscard]] MessageWords& message_words(std::int32_t rank) const;
  [[nodiscard]] std::atomic_ref<std::uint64_t> message_place(std::int32_t from,
                                                             std::int32_t to) const;

  // Zeros at first, as numbers of calls that nobody has made.
  [[nodiscard]] std::span<std::byte> lines() const;

  // The leader of a board inside another one publishes, once, where a board with larger slots lies,
  // and rings all ranks; below 0: there is none. larger(): nullopt until then.
  void publish_larger(std::int64_t place) const;
  [[nodiscard]] std::optional<std::int64_t> larger() const;
  // What the class Slots works on: the counters by rank, and the buffers, kSlotBuffers after each
  // other for each rank. The board owns both.
  [[nodiscard]] SlotWords* slot_words() const;
  [[nodiscard]] std::byte* slot_buffers() const;
  // The arena of a rank, as this process sees it: empty if the geometry has none.
  [[nodiscard]] std::span<std::byte> arena(std::int32_t rank) const;
  // The arenas of all ranks, one after the other.
  [[nodiscard]] std::span<std::byte> arenas() const;

  // Records a failure and rings all ranks. The first one wins: returns false, and changes nothing,
  // when there was one before.
  bool fail(const FailureRecord& record) const;
  // The same, but where this board lies inside another one that one does not fail with it.
  bool fail_alone(const FailureRecord& record) const;
  // Tells whether a failure was claimed. It is a load or two, cheap enough for every step of the
  // agent.
  [[nodiscard]] bool failed() const;
  // The failure, or nullopt. It waits shortly for a record that is claimed and not written yet,
  // whose writer is between two instructions, or dead; then it returns a record in general words
  // with complete == false.
  [[nodiscard]] std::optional<FailureRecord> failure() const;

 private:
  Board() = default;
  [[nodiscard]] std::size_t index_of_rank(std::int32_t rank) const;
  [[nodiscard]] std::size_t index_of_entry(std::int64_t entry) const;
  [[nodiscard]] std::atomic_ref<std::uint64_t> arrived_mark(std::int32_t rank, std::int64_t entry,
                                                            std::size_t word = 0) const;
  [[nodiscard]] std::atomic_ref<std::uint64_t> arrival_time_word(std::int32_t rank,
                                                                 std::int64_t entry,
                                                                 std::size_t word = 0) const;
  [[nodiscard]] std::span<std::byte> announce_ring(std::size_t index) const;
  [[nodiscard]] bool record_failure(const FailureRecord& record) const;

  std::shared_ptr<SharedMemory> memory_;
  std::shared_ptr<const BoardSections> sections_;
  EventFds event_fds_;
  std::shared_ptr<const BoardPlace> place_;  // nullptr: in no other board
  BoardGeometry geometry_;
  std::int32_t rank_ = 0;
};

// What a board inside another one has of that one. Only the sources of board/ use it.
// Thread safety: immutable once it is made.
struct BoardPlace {
  Board board;                          // the other one, seen from this process
  std::vector<std::int32_t> positions;  // by rank: where it is there
  Board::Told told;
};

}  // namespace ronde::collectives
