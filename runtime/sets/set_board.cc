// SPDX-License-Identifier: Apache-2.0
#include "runtime/sets/set_board.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr std::size_t kPage = 4096;

// Messages of any length pass through a small ring. What has no place in the plan goes by name.
constexpr std::int64_t kAnnounceBytes = 4 << 10;
constexpr std::int64_t kDecisionBytes = 16 << 10;
constexpr std::int64_t kEntries = 1024;
// The bytes of all buffers of a rank. They take memory as they are first used.
constexpr std::int64_t kSlots = kMostOfSmallSlots;
constexpr std::int64_t kLine = 64;

}  // namespace

collectives::BoardGeometry geometry_of_set(std::int32_t ranks, const base::Config& config) {
  collectives::BoardGeometry geometry;
  geometry.ranks = ranks;
  geometry.announce_bytes = kAnnounceBytes;
  geometry.decision_bytes = kDecisionBytes;
  geometry.entries = std::min(config.plan_capacity, kEntries);
  geometry.slot_bytes = std::max(kSlots / collectives::kSlotBuffers / kLine * kLine, kLine * ranks);
  return geometry;
}

collectives::BoardGeometry geometry_of_large_slots(std::int32_t ranks) {
  collectives::BoardGeometry geometry;  // with slots as a job has them
  geometry.ranks = ranks;
  geometry.announce_bytes = kLine;  // the other board has the streams
  geometry.decision_bytes = kLine;
  geometry.slot_bytes = std::max(geometry.slot_bytes, kLine * ranks);
  return geometry;
}

Result<std::unique_ptr<SetMemory>> SetMemory::make(const collectives::Board& board,
                                                   std::shared_ptr<BoardMemory> memory,
                                                   const collectives::BoardGeometry& geometry) {
  // Pages that hold nothing else are zero, as a board's must be.
  const std::size_t bytes = collectives::Board::size_of(geometry).size();
  RONDE_ASSIGN_OR_RETURN(
      auto buffer,
      BoardBuffer::allocate(std::move(memory), base::Bytes::of_size(bytes + 2 * kPage)));
  const std::span<std::byte> arenas = board.arenas();
  const auto begin = static_cast<std::size_t>(buffer->bytes().data() - arenas.data());
  const std::size_t offset = (begin + kPage - 1) / kPage * kPage;
  const std::span<std::byte> mine = arenas.subspan(offset, bytes);
  RONDE_RETURN_IF_ERROR(collectives::Board::format_within(mine, geometry));
  std::vector<std::int32_t> nowhere(static_cast<std::size_t>(geometry.ranks));
  RONDE_ASSIGN_OR_RETURN(const auto made,
                         collectives::Board::within(board, mine, 0, std::move(nowhere), nullptr));
  // What was measured when the job was opened holds here too.
  made.publish_tuning(board.tuning().value_or(collectives::SlotTuning()));
  return std::unique_ptr<SetMemory>(
      new SetMemory(std::move(buffer), base::narrow<std::int64_t>(offset)));
}

Result<std::unique_ptr<SetMemory>> SetMemory::plain(std::shared_ptr<BoardMemory> memory,
                                                    base::Bytes bytes) {
  RONDE_ASSIGN_OR_RETURN(auto buffer, BoardBuffer::allocate(std::move(memory), bytes));
  return std::unique_ptr<SetMemory>(new SetMemory(std::move(buffer), 0));
}

Result<std::span<std::byte>> memory_at(const collectives::Board& board, std::int64_t offset,
                                       const collectives::BoardGeometry& geometry) {
  const std::size_t bytes = collectives::Board::size_of(geometry).size();
  const std::span<std::byte> arenas = board.arenas();
  if (offset < 0 || std::cmp_greater(offset, arenas.size()) ||
      bytes > arenas.size() - static_cast<std::size_t>(offset)) {
    return Status::error(Code::kInternal, "the board of a process set lies outside of the arenas");
  }
  return arenas.subspan(static_cast<std::size_t>(offset), bytes);
}

}  // namespace ronde::runtime
