// SPDX-License-Identifier: Apache-2.0
// The coordinator: see coordinator.h.
#include "runtime/coordinator.h"

#include <sstream>
#include <utility>

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

std::string seconds_text(std::int64_t nanoseconds) {
  std::ostringstream text;
  text.precision(3);
  text << static_cast<double>(nanoseconds) / 1e9 << " s";
  return text.str();
}

}  // namespace

std::uint32_t Coordinator::BoardArrivals::close_generation(std::int32_t entry,
                                                           std::uint32_t generation) {
  return board_.close_generation(entry, generation);
}

void Coordinator::BoardArrivals::reset(std::int32_t entry) {
  const collectives::ArrivalCount arrival = board_.arrival(entry);
  board_.reset(entry, arrival.generation, static_cast<std::uint32_t>(board_.ranks()));
}

std::uint32_t Coordinator::BoardArrivals::count(std::int32_t entry) {
  return board_.arrival(entry).count;
}

bool Coordinator::BoardArrivals::has_arrived(std::int32_t rank, std::int32_t entry) {
  return board_.has_arrived(rank, entry);
}

Coordinator::Coordinator(collectives::Board board, const base::Config& config,
                         const base::Clock& clock)
    : board_(std::move(board)),
      config_(config),
      clock_(clock),
      arrivals_(board_),
      negotiator_(board_.ranks(), config.plan_capacity, arrivals_),
      decisions_(board_.decision_writer()) {
  for (std::int32_t rank = 0; rank < board_.ranks(); ++rank) {
    announcements_.push_back(board_.announce_reader(rank));
  }
}

Result<int> Coordinator::step(bool data_plane_idle) {
  const auto read = read_announcements();
  RONDE_RETURN_IF_ERROR(read.status());
  const auto published = publish(data_plane_idle);
  RONDE_RETURN_IF_ERROR(published.status());
  return *read + *published;
}

Result<int> Coordinator::read_announcements() {
  int work = 0;
  for (std::size_t rank = 0; rank < announcements_.size(); ++rank) {
    while (true) {
      const auto bytes = announcements_[rank].poll();
      RONDE_RETURN_IF_ERROR(bytes.status());
      if (!bytes->has_value()) break;
      const auto announcement = decode_announcement(**bytes);
      RONDE_RETURN_IF_ERROR(announcement.status());
      RONDE_RETURN_IF_ERROR(on_announcement(base::narrow<std::int32_t>(rank), *announcement));
      ++work;
    }
  }
  while (const auto entry = board_.pop_ready()) {
    negotiator_.on_entry_ready(base::narrow<std::int32_t>(*entry));
    ++work;
  }
  return work;
}

Status Coordinator::on_announcement(std::int32_t rank, const Announcement& announcement) {
  if (const auto* request = std::get_if<RequestAnnouncement>(&announcement)) {
    negotiator_.on_request(rank, *request);
    return {};
  }
  if (const auto* closing = std::get_if<ClosingAnnouncement>(&announcement)) {
    negotiator_.on_closing(rank, closing->forced);
    return {};
  }
  return on_stalled(rank, std::get<StalledAnnouncement>(announcement));
}

Status Coordinator::on_stalled(std::int32_t rank, const StalledAnnouncement& stalled) {
  const auto waiting = negotiator_.waiting_for(stalled.name);
  // Everybody has submitted it meanwhile: it is in a batch or about to be.
  if (!waiting || waiting->missing.empty()) return {};
  std::string text = "'" + stalled.name + "' has waited for " + seconds_text(stalled.waited_ns) +
                     ": submitted on " + ranks_phrase(waiting->ready) + ", not yet on " +
                     ranks_phrase(waiting->missing);
  for (const std::int32_t missing : waiting->missing) {
    const std::string doing = board_.presence(missing).doing;
    if (!doing.empty()) text += "; rank " + std::to_string(missing) + " was last " + doing;
  }
  if (!stalled.failed) {
    // Every rank that waits reports the same stall; one line is enough.
    const base::Instant now = clock_.now();
    std::erase_if(noticed_, [&](const auto& notice) { return notice.second <= now; });
    const bool fresh = noticed_.emplace(stalled.name, now + config_.stall_warning).second;
    return fresh ? post(NoticeDecision{stalled.name, text}) : Status();
  }
  collectives::FailureRecord record;
  record.culprit = waiting->missing.front();
  record.reporter = rank;
  record.code = Code::kDeadline;
  record.text = text + ". This is the deadline of RONDE_STALL_FAILURE_SECONDS";
  board_.fail(record);
  return {};
}

// Group commit: while the data plane is busy, what becomes ready waits and goes together.
Result<int> Coordinator::publish(bool data_plane_idle) {
  int work = 0;
  for (const Decision& decision : negotiator_.take_decisions()) {
    RONDE_RETURN_IF_ERROR(post(decision));
    ++work;
  }
  if (data_plane_idle && negotiator_.has_ready() && !lingers()) {
    auto batch = negotiator_.next_batch(config_.batch_bytes);
    RONDE_RETURN_IF_ERROR(post(std::move(*batch)));
    ++work;
    for (const Decision& decision : negotiator_.take_decisions()) {
      RONDE_RETURN_IF_ERROR(post(decision));
    }
  }
  detach_departed();
  const auto flushed = decisions_.flush();
  RONDE_RETURN_IF_ERROR(flushed.status());
  drained_ = *flushed;
  if (decisions_.take_added()) ring_the_others();
  return work;
}

// This rank reads what was decided in the same look.
void Coordinator::ring_the_others() {
  for (std::int32_t rank = 0; rank < board_.ranks(); ++rank) {
    if (rank != board_.rank()) board_.doorbell(rank).ring();
  }
}

bool Coordinator::lingers() {
  if (config_.linger.count() == 0) return false;
  if (linger_until_ == base::kNever) linger_until_ = clock_.after(config_.linger);
  if (clock_.now() < linger_until_) return true;
  linger_until_ = base::kNever;
  return false;
}

base::Instant Coordinator::next_deadline() const { return linger_until_; }

Status Coordinator::post(const Decision& decision) {
  if (const auto* departed = std::get_if<DepartedDecision>(&decision)) {
    if (departed->rank != board_.rank()) leaving_.push_back(departed->rank);
  }
  return decisions_.post(encode(decision));
}

// A rank that has left reads no further, so nobody may wait for it; but until then it needs what
// was decided before.
void Coordinator::detach_departed() {
  std::erase_if(leaving_, [this](std::int32_t rank) {
    if (board_.state(rank) != collectives::PresenceState::kClosed) return false;
    decisions_.detach(rank);
    return true;
  });
}

}  // namespace ronde::runtime
