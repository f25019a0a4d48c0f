// SPDX-License-Identifier: Apache-2.0
// The order and the alignment of a board's sections, as board.h lists them.
#include "collectives/board/layout.h"

namespace ronde::collectives {

namespace {

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kCacheLinePair - 1) / kCacheLinePair * kCacheLinePair;
}

// Hands out one section after another, each on its own cache lines.
class Placer {
 public:
  explicit Placer(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* one() {
    return many<T>(1).data();
  }
  template <typename T>
  std::span<T> many(std::size_t count) {
    const std::size_t at = used_;
    used_ += round_up(count * sizeof(T));
    // Without memory only the sizes matter.
    if (memory_ == nullptr) return {};
    return {reinterpret_cast<T*>(memory_ + at), count};
  }
  // The next section begins on a page of this size.
  void next_page(std::size_t page) { used_ = (used_ + page - 1) / page * page; }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace

BoardSections lay_out(const BoardGeometry& geometry, std::byte* memory) {
  const auto ranks = static_cast<std::size_t>(geometry.ranks);
  const auto entries = static_cast<std::size_t>(geometry.entries);
  const auto announce_bytes = static_cast<std::size_t>(geometry.announce_bytes);
  const auto decision_bytes = static_cast<std::size_t>(geometry.decision_bytes);
  Placer place(memory);
  BoardSections sections;
  sections.header = place.one<BoardHeader>();
  sections.failure = place.one<FailureWords>();
  sections.ready = place.one<ReadyWords>();
  sections.ready_slots = place.many<std::atomic<std::uint32_t>>(entries + ranks);
  sections.doorbells = place.many<DoorbellWords>(ranks);
  sections.presence = place.many<PresenceWords>(ranks);
  sections.announce_writers = place.many<StreamWriterWords>(ranks);
  sections.announce_readers = place.many<StreamReaderWords>(ranks);
  sections.announce_rings = place.many<std::byte>(ranks * round_up(announce_bytes));
  sections.decision_writer = place.one<StreamWriterWords>();
  sections.decision_readers = place.many<StreamReaderWords>(ranks);
  sections.decision_ring = place.many<std::byte>(decision_bytes);
  sections.arrival = place.many<std::atomic<std::uint64_t>>(entries);
  sections.arrived_row = round_up(2 * entries);
  sections.arrived = place.many<std::uint64_t>(ranks * sections.arrived_row);
  sections.arrival_times_row = round_up(2 * entries);
  sections.arrival_times = place.many<std::uint64_t>(ranks * sections.arrival_times_row);
  sections.tuning = place.one<TuningWords>();
  sections.message_words = place.many<MessageWords>(ranks);
  sections.message_places = place.many<std::uint64_t>(ranks * ranks);
  sections.lines = place.many<std::byte>(static_cast<std::size_t>(geometry.line_bytes));
  sections.slot_words = place.many<SlotWords>(ranks);
  place.next_page(kPage);
  sections.slot_buffers =
      place.many<std::byte>(ranks * kSlotBuffers * static_cast<std::size_t>(geometry.slot_bytes));
  if (geometry.arena_bytes > 0) {
    place.next_page(kHugePage);
    sections.arenas = place.many<std::byte>(ranks * static_cast<std::size_t>(geometry.arena_bytes));
  }
  sections.total = place.used();
  return sections;
}

}  // namespace ronde::collectives
