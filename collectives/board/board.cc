// SPDX-License-Identifier: Apache-2.0
// The control part of the board: its making and checking, streams, arrivals and the ready queue.
// What verdicts are made of (presence and failure) is in presence.cc.
#include "collectives/board/board.h"

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "collectives/board/layout.h"

namespace ronde::collectives {

namespace {

using base::Bytes;
using base::check;
using base::Code;
using base::Result;
using base::Status;

constexpr std::int32_t kMostRanks = 4096;
constexpr std::int64_t kMostEntries = std::int64_t{1} << 24;
constexpr std::int64_t kSmallestRing = 64;
constexpr std::int64_t kLargestRing = std::int64_t{1} << 30;
// Slot sizes are multiples of this, so that every buffer begins on a cache line.
constexpr std::int64_t kSlotGrain = 64;
constexpr std::int64_t kArenaGrain = 4096;  // a page
constexpr std::int64_t kLargestArena = std::int64_t{1} << 40;

Status check_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return Status::error(Code::kInvalidArgument,
                       std::string("a board with ") + what + " " + std::to_string(value) +
                           " is not possible: it must be from " + std::to_string(least) + " to " +
                           std::to_string(most));
}

Status not_a_board(const std::string& why) {
  return Status::error(Code::kInternal,
                       "the shared memory of this host is not a board of this version of Ronde: " +
                           why + "; start all ranks from the same build");
}

constexpr std::uint32_t kNumbered = 1U << 31U;  // beside the count

constexpr std::uint64_t pack(const ArrivalCount& of) {
  return std::uint64_t{of.generation} << 32 | of.count | (of.numbered ? kNumbered : 0);
}
constexpr ArrivalCount unpack(std::uint64_t word) {
  const auto low = static_cast<std::uint32_t>(word);
  return {static_cast<std::uint32_t>(word >> 32), low & ~kNumbered, (low & kNumbered) != 0};
}

// Reads the geometry of a board that lies in this memory, seen from `rank`.
Result<BoardGeometry> geometry_in(std::span<std::byte> memory, std::int32_t rank) {
  if (memory.size() < sizeof(BoardHeader)) return not_a_board("it is too small");
  const auto* header = reinterpret_cast<const BoardHeader*>(memory.data());
  if (header->magic.load(std::memory_order_acquire) != kBoardMagic) {
    return not_a_board("its first word is not a board's");
  }
  if (header->version != kBoardVersion) {
    return not_a_board("it has version " + std::to_string(header->version) + ", not " +
                       std::to_string(kBoardVersion));
  }
  const BoardGeometry geometry = header->geometry;
  const Status valid = Board::check_geometry(geometry);
  if (!valid.ok()) return not_a_board(valid.message());
  if (Board::size_of(geometry).size() > memory.size()) {
    return not_a_board("it is shorter than its geometry needs");
  }
  if (rank >= 0 && rank < geometry.ranks) return geometry;
  return Status::error(Code::kInvalidArgument, "rank " + std::to_string(rank) +
                                                   " does not exist on a board of " +
                                                   std::to_string(geometry.ranks));
}

template <typename T>
void construct(std::span<T> items) {
  std::uninitialized_value_construct(items.begin(), items.end());
}

}  // namespace

Status Board::check_geometry(const BoardGeometry& geometry) {
  RONDE_RETURN_IF_ERROR(check_range("ranks", geometry.ranks, 1, kMostRanks));
  RONDE_RETURN_IF_ERROR(check_range("plan entries", geometry.entries, 0, kMostEntries));
  RONDE_RETURN_IF_ERROR(
      check_range("announcement bytes", geometry.announce_bytes, kSmallestRing, kLargestRing));
  RONDE_RETURN_IF_ERROR(
      check_range("decision bytes", geometry.decision_bytes, kSmallestRing, kLargestRing));
  RONDE_RETURN_IF_ERROR(
      check_range("slot bytes", geometry.slot_bytes, kSlotGrain * geometry.ranks, kLargestRing));
  RONDE_RETURN_IF_ERROR(
      check_range("line bytes", geometry.line_bytes, 0, kMostRanks * kLineBytesOfRank));
  RONDE_RETURN_IF_ERROR(check_range("arena bytes", geometry.arena_bytes, 0, kLargestArena));
  if (geometry.arena_bytes % kArenaGrain != 0) {
    return Status::error(Code::kInvalidArgument, "arenas of " +
                                                     std::to_string(geometry.arena_bytes) +
                                                     " bytes are not possible: use a multiple of " +
                                                     std::to_string(kArenaGrain));
  }
  if (geometry.slot_bytes % kSlotGrain == 0) return {};
  return Status::error(Code::kInvalidArgument, "slots of " + std::to_string(geometry.slot_bytes) +
                                                   " bytes are not possible: use a multiple of " +
                                                   std::to_string(kSlotGrain));
}

Bytes Board::size_of(const BoardGeometry& geometry) {
  check(check_geometry(geometry).ok(), "the geometry of a board has been checked");
  return Bytes::of_size(lay_out(geometry, nullptr).total);
}

std::vector<Bytes> Board::parts_of(const BoardGeometry& geometry) {
  std::vector<Bytes> parts{size_of(geometry) - Bytes(geometry.ranks * geometry.arena_bytes)};
  if (geometry.arena_bytes > 0) {
    parts.resize(1 + static_cast<std::size_t>(geometry.ranks), Bytes(geometry.arena_bytes));
  }
  return parts;
}

Status Board::format(SharedMemory& memory, const BoardGeometry& geometry) {
  RONDE_RETURN_IF_ERROR(check_geometry(geometry));
  if (memory.bytes().size() < size_of(geometry).size()) {
    return Status::error(Code::kInvalidArgument, "a board of " +
                                                     std::to_string(size_of(geometry).value()) +
                                                     " bytes does not fit shared memory of " +
                                                     std::to_string(memory.bytes().size()));
  }
  return format_within(memory.bytes(), geometry);
}

Status Board::format_within(std::span<std::byte> memory, const BoardGeometry& geometry) {
  RONDE_RETURN_IF_ERROR(check_geometry(geometry));
  check(memory.size() >= size_of(geometry).size(), "a board fits its memory");
  const BoardSections sections = lay_out(geometry, memory.data());
  auto* header = new (sections.header) BoardHeader;
  new (sections.failure) FailureWords;
  new (sections.ready) ReadyWords;
  new (sections.decision_writer) StreamWriterWords;
  new (sections.tuning) TuningWords;
  construct(sections.message_words);
  construct(sections.slot_words);
  construct(sections.ready_slots);
  construct(sections.doorbells);
  construct(sections.presence);
  construct(sections.announce_writers);
  construct(sections.announce_readers);
  construct(sections.decision_readers);
  construct(sections.arrival);
  header->version = kBoardVersion;
  header->geometry = geometry;
  header->magic.store(kBoardMagic, std::memory_order_release);
  return {};
}

Result<Board> Board::attach(std::shared_ptr<SharedMemory> memory, std::int32_t rank,
                            EventFds event_fds) {
  RONDE_ASSIGN_OR_RETURN(const auto geometry, geometry_in(memory->bytes(), rank));
  if (event_fds == nullptr || std::cmp_not_equal(event_fds->size(), geometry.ranks)) {
    return Status::error(Code::kInvalidArgument, "a board of " + std::to_string(geometry.ranks) +
                                                     " ranks needs as many eventfds");
  }
  Board board;
  board.sections_ =
      std::make_shared<const BoardSections>(lay_out(geometry, memory->bytes().data()));
  memory->declare_bulk(board.sections_->slot_buffers);
  memory->declare_bulk(board.sections_->arenas);
  board.memory_ = std::move(memory);
  board.event_fds_ = std::move(event_fds);
  board.geometry_ = geometry;
  board.rank_ = rank;
  return board;
}

Result<Board> Board::within(const Board& parent, std::span<std::byte> memory, std::int32_t rank,
                            std::vector<std::int32_t> positions, Told told) {
  RONDE_ASSIGN_OR_RETURN(const auto geometry, geometry_in(memory, rank));
  check(std::cmp_equal(positions.size(), geometry.ranks), "every rank has its position");
  Board board;
  board.sections_ = std::make_shared<const BoardSections>(lay_out(geometry, memory.data()));
  board.memory_ = parent.memory_;
  board.place_ =
      std::make_shared<const BoardPlace>(BoardPlace{parent, std::move(positions), std::move(told)});
  board.geometry_ = geometry;
  board.rank_ = rank;
  return board;
}

Doorbell Board::doorbell(std::int32_t rank) const {
  const auto index = index_of_rank(rank);
  if (place_) return place_->board.doorbell(place_->positions[index]);
  return {&sections_->doorbells[index], (*event_fds_)[index].get()};
}

void Board::ring_all() const {
  for (std::int32_t rank = 0; rank < geometry_.ranks; ++rank) doorbell(rank).ring();
}

std::size_t Board::index_of_rank(std::int32_t rank) const {
  check(rank >= 0 && rank < geometry_.ranks, "a rank of this board");
  return static_cast<std::size_t>(rank);
}

std::size_t Board::index_of_entry(std::int64_t entry) const {
  check(entry >= 0 && entry < geometry_.entries, "an entry of this board");
  return static_cast<std::size_t>(entry);
}

StreamWriter Board::announce_writer() const {
  const auto index = index_of_rank(rank_);
  return {&sections_->announce_writers[index], sections_->announce_readers.subspan(index, 1),
          announce_ring(index)};
}

StreamReader Board::announce_reader(std::int32_t from) const {
  const auto index = index_of_rank(from);
  return {&sections_->announce_writers[index], &sections_->announce_readers[index],
          announce_ring(index), doorbell(from)};
}

std::span<std::byte> Board::announce_ring(std::size_t index) const {
  const std::size_t ring_bytes =  // one ring with its padding
      sections_->announce_rings.size() / static_cast<std::size_t>(geometry_.ranks);
  return sections_->announce_rings.subspan(index * ring_bytes,
                                           static_cast<std::size_t>(geometry_.announce_bytes));
}

StreamWriter Board::decision_writer() const {
  return {sections_->decision_writer, sections_->decision_readers, sections_->decision_ring};
}

StreamReader Board::decision_reader(std::int32_t coordinator) const {
  return {sections_->decision_writer, &sections_->decision_readers[index_of_rank(rank_)],
          sections_->decision_ring, doorbell(coordinator)};
}

Arrival Board::arrive(std::int64_t entry, std::uint32_t generation, std::uint32_t expected,
                      bool numbered) const {
  auto& word = sections_->arrival[index_of_entry(entry)];
  std::uint64_t seen = word.load(std::memory_order_seq_cst);
  for (;;) {
    const ArrivalCount now = unpack(seen);
    if (now.generation != generation) return Arrival::kStale;
    check(now.count < expected, "a rank arrives once per generation");
    if (word.compare_exchange_weak(seen,
                                   pack({generation, now.count + 1, now.numbered || numbered}),
                                   std::memory_order_seq_cst)) {
      return now.count + 1 == expected ? Arrival::kLast : Arrival::kArrived;
    }
  }
}

void Board::reset(std::int64_t entry, std::uint32_t generation, std::uint32_t expected) const {
  auto& word = sections_->arrival[index_of_entry(entry)];
  // No rank arrives at a complete entry, so what was read is what is there.
  std::uint64_t complete = word.load(std::memory_order_seq_cst);
  const ArrivalCount now = unpack(complete);
  check(now.generation == generation && now.count == expected &&
            word.compare_exchange_strong(complete, pack({generation, 0, false}),
                                         std::memory_order_seq_cst),
        "only a complete entry is reset");
}

std::uint32_t Board::close_generation(std::int64_t entry, std::uint32_t new_generation) const {
  return unpack(sections_->arrival[index_of_entry(entry)].exchange(pack({new_generation, 0, false}),
                                                                   std::memory_order_seq_cst))
      .count;
}

ArrivalCount Board::arrival(std::int64_t entry) const {
  return unpack(sections_->arrival[index_of_entry(entry)].load(std::memory_order_seq_cst));
}

std::atomic_ref<std::uint64_t> Board::arrived_mark(std::int32_t rank, std::int64_t entry,
                                                   std::size_t word) const {
  return std::atomic_ref(sections_->arrived[index_of_rank(rank) * sections_->arrived_row +
                                            2 * index_of_entry(entry) + word]);
}

// Marks count from 1, since 0 stands for no mark.
void Board::mark_arrived(std::int64_t entry, std::uint64_t received_batches, std::uint64_t step,
                         base::Instant time, base::Nanoseconds waited) const {
  arrived_mark(rank_, entry).store(received_batches + 1, std::memory_order_relaxed);
  arrived_mark(rank_, entry, 1).store(step, std::memory_order_relaxed);
  arrival_time_word(rank_, entry)
      .store(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
  arrival_time_word(rank_, entry, 1)
      .store(static_cast<std::uint64_t>(waited.count()), std::memory_order_relaxed);
}

std::atomic_ref<std::uint64_t> Board::arrival_time_word(std::int32_t rank, std::int64_t entry,
                                                        std::size_t word) const {
  return std::atomic_ref(
      sections_->arrival_times[index_of_rank(rank) * sections_->arrival_times_row +
                               2 * index_of_entry(entry) + word]);
}

base::Instant Board::arrival_time(std::int32_t rank, std::int64_t entry) const {
  return base::Instant(
      static_cast<std::int64_t>(arrival_time_word(rank, entry).load(std::memory_order_relaxed)));
}

base::Nanoseconds Board::waited_before(std::int32_t rank, std::int64_t entry) const {
  return base::Nanoseconds(
      static_cast<std::int64_t>(arrival_time_word(rank, entry, 1).load(std::memory_order_relaxed)));
}

std::uint64_t Board::step_of(std::int32_t rank, std::int64_t entry) const {
  return arrived_mark(rank, entry, 1).load(std::memory_order_relaxed);
}

void Board::unmark_arrived(std::int64_t entry) const {
  arrived_mark(rank_, entry).store(0, std::memory_order_relaxed);
}

bool Board::has_arrived(std::int32_t rank, std::int64_t entry, std::uint64_t last_batch) const {
  return arrived_mark(rank, entry).load(std::memory_order_relaxed) > last_batch;
}

void Board::push_ready(std::int64_t entry) const {
  const auto value = base::narrow<std::uint32_t>(index_of_entry(entry) + 1);
  const std::uint64_t at = sections_->ready->tail.fetch_add(1, std::memory_order_seq_cst);
  // The exchange is seq_cst, because the coordinator looks here before it sleeps.
  const std::uint32_t before = sections_->ready_slots[at % sections_->ready_slots.size()].exchange(
      value, std::memory_order_seq_cst);
  check(before == 0, "the ready queue has room for every entry and every slow rank");
}

std::optional<std::int64_t> Board::pop_ready() const {
  if (sections_->ready_slots.empty()) return std::nullopt;
  const std::uint64_t at = sections_->ready->head.load(std::memory_order_relaxed);
  auto& slot = sections_->ready_slots[at % sections_->ready_slots.size()];
  const std::uint32_t value = slot.load(std::memory_order_seq_cst);
  if (value == 0) return std::nullopt;
  slot.store(0, std::memory_order_release);
  sections_->ready->head.store(at + 1, std::memory_order_relaxed);
  return std::int64_t{value} - 1;
}

void Board::publish_tuning(const SlotTuning& tuning) const {
  sections_->tuning->tuning = tuning;
  sections_->tuning->published.store(1, std::memory_order_release);
}

std::optional<SlotTuning> Board::tuning() const {
  if (sections_->tuning->published.load(std::memory_order_acquire) == 0) return std::nullopt;
  return sections_->tuning->tuning;
}

MessageWords& Board::message_words(std::int32_t rank) const {
  return sections_->message_words[index_of_rank(rank)];
}

std::atomic_ref<std::uint64_t> Board::message_place(std::int32_t from, std::int32_t to) const {
  const auto ranks = static_cast<std::size_t>(geometry_.ranks);
  return std::atomic_ref(
      sections_->message_places[index_of_rank(from) * ranks + index_of_rank(to)]);
}

void Board::publish_larger(std::int64_t place) const {
  const std::uint64_t word = place < 0 ? 1 : static_cast<std::uint64_t>(place) + 2;
  sections_->tuning->larger.store(word, std::memory_order_seq_cst);
  ring_all();
}

std::optional<std::int64_t> Board::larger() const {
  const std::uint64_t word = sections_->tuning->larger.load(std::memory_order_seq_cst);
  if (word == 0) return std::nullopt;
  return static_cast<std::int64_t>(word) - 2;
}

SlotWords* Board::slot_words() const { return sections_->slot_words.data(); }

std::byte* Board::slot_buffers() const { return sections_->slot_buffers.data(); }

std::span<std::byte> Board::arena(std::int32_t rank) const {
  if (place_) return place_->board.arena(place_->positions[index_of_rank(rank)]);
  const auto bytes = static_cast<std::size_t>(geometry_.arena_bytes);
  return sections_->arenas.subspan(index_of_rank(rank) * bytes, bytes);
}

std::span<std::byte> Board::lines() const { return sections_->lines; }

std::span<std::byte> Board::arenas() const {
  return place_ ? place_->board.arenas() : sections_->arenas;
}

}  // namespace ronde::collectives
