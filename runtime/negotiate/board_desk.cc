// SPDX-License-Identifier: Apache-2.0
// Polling of the ranks' announcement streams, and the shared decision stream, whose readers may
// have left.
#include "runtime/negotiate/board_desk.h"

#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Result;

StepSpan steps_of(const collectives::Board& board, std::span<const std::int32_t> ranks,
                  const Joined& joined, std::int32_t entry) {
  StepSpan steps;
  if (!board.arrival(entry).numbered) {
    steps.add(ranks.front(), {});
    return steps;
  }
  for (std::int32_t position = 0; position < board.ranks(); ++position) {
    if (joined.has(ranks[base::narrow<std::size_t>(position)])) continue;
    steps.add(ranks[base::narrow<std::size_t>(position)],
              StepNumber::of_word(board.step_of(position, entry)));
  }
  return steps;
}

ArrivalSpan arrivals_of(const collectives::Board& board, std::span<const std::int32_t> ranks,
                        const Joined& joined, std::int32_t entry) {
  ArrivalSpan arrivals;
  for (std::int32_t position = 0; position < board.ranks(); ++position) {
    const std::int32_t rank = ranks[base::narrow<std::size_t>(position)];
    if (joined.has(rank)) continue;
    arrivals.add(rank, {board.arrival_time(position, entry), board.waited_before(position, entry)});
  }
  return arrivals;
}

BoardDesk::BoardDesk(collectives::Board board)
    : board_(std::move(board)), decisions_(board_.decision_writer()) {
  for (std::int32_t position = 0; position < board_.ranks(); ++position) {
    announcements_.push_back(board_.announce_reader(position));
  }
}

Result<int> BoardDesk::take_announcements(const TakeAnnouncement& take) {
  int work = 0;
  for (std::size_t position = 0; position < announcements_.size(); ++position) {
    while (true) {
      RONDE_ASSIGN_OR_RETURN(const auto bytes, announcements_[position].poll());
      if (!bytes.has_value()) break;
      RONDE_RETURN_IF_ERROR(take(base::narrow<std::int32_t>(position), *bytes));
      ++work;
    }
  }
  return work;
}

Result<int> BoardDesk::take_ready(const TakeReady& take) {
  int work = 0;
  while (const auto entry = board_.pop_ready()) {
    RONDE_RETURN_IF_ERROR(take(base::narrow<std::int32_t>(*entry)));
    ++work;
  }
  return work;
}

base::Status BoardDesk::flush() {
  auto flushed = decisions_.flush();
  if (flushed.ok() && !*flushed) {
    detach_closed();
    flushed = decisions_.flush();
  }
  RONDE_RETURN_IF_ERROR(flushed.status());
  drained_ = *flushed;
  if (!decisions_.take_added()) return {};
  // The leader itself needs no ring: it reads the decisions in the same step of its agent.
  for (std::int32_t position = 0; position < board_.ranks(); ++position) {
    if (position != board_.rank()) board_.doorbell(position).ring();
  }
  return {};
}

// A rank that has left reads no further decisions, whether it left after its own departure, its
// leader's or the coordinator's. It rings when it leaves, so that flush() runs again.
void BoardDesk::detach_closed() {
  for (std::int32_t position = 0; position < board_.ranks(); ++position) {
    if (board_.state(position) == collectives::PresenceState::kClosed) decisions_.detach(position);
  }
}

}  // namespace ronde::runtime
