// SPDX-License-Identifier: Apache-2.0
// The coordinator's step: reading announcements, and group commit of batches. What it does about
// stalls is in coordinator_stalls.cc.
#include "runtime/negotiate/coordinator.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr std::int32_t kHost = 0;  // the coordinator's own host

}  // namespace

std::uint32_t Coordinator::BoardArrivals::close_generation(std::int32_t entry,
                                                           std::uint32_t generation) {
  return board_.close_generation(entry, generation);
}

void Coordinator::BoardArrivals::reset(std::int32_t entry) {
  // It is complete, so nobody changes it.
  const collectives::ArrivalCount arrival = board_.arrival(entry);
  if (arrival.count > 0) board_.reset(entry, arrival.generation, arrival.count);
}

std::uint32_t Coordinator::BoardArrivals::count(std::int32_t entry) {
  return board_.arrival(entry).count;
}

bool Coordinator::BoardArrivals::has_arrived(std::int32_t rank, std::int32_t entry,
                                             std::uint64_t last_batch) {
  return shape_.host_of(rank) == kHost &&
         board_.has_arrived(shape_.position_of(rank), entry, last_batch);
}

StepSpan Coordinator::BoardArrivals::steps(std::int32_t entry, const Joined& joined) {
  return steps_of(board_, shape_.ranks_of(kHost), joined, entry);
}

ArrivalSpan Coordinator::BoardArrivals::arrivals(std::int32_t entry, const Joined& joined) {
  return arrivals_of(board_, shape_.ranks_of(kHost), joined, entry);
}

StepNumber Coordinator::BoardArrivals::step_of(std::int32_t rank, std::int32_t entry) {
  if (shape_.host_of(rank) != kHost) return {};
  return StepNumber::of_word(board_.step_of(shape_.position_of(rank), entry));
}

Coordinator::Coordinator(const collectives::Board& board, const base::JobShape& shape, Links* links,
                         const base::Config& config, const base::Clock& clock, LateRanks& late)
    : shape_(shape),
      links_(links),
      config_(config),
      clock_(clock),
      desk_(board),
      arrivals_(board, shape),
      negotiator_(shape.ranks(), {board.ranks(), links == nullptr ? 0 : links->children()},
                  config.plan_capacity, arrivals_),
      sets_(shape, config.stall_warning, config.stall_failure),
      deadlock_(shape.ranks(), config.deadlock_grace),
      far_(shape.ranks()) {
  negotiator_.record_in(late);
}

Result<int> Coordinator::step(bool data_plane_idle) {
  RONDE_ASSIGN_OR_RETURN(int work, read_board());
  if (links_ != nullptr) {
    RONDE_ASSIGN_OR_RETURN(const auto read, read_links(data_plane_idle));
    work += read;
  }
  if (over_) {
    RONDE_RETURN_IF_ERROR(flush());
    return work;
  }
  RONDE_RETURN_IF_ERROR(report_stalls());
  RONDE_RETURN_IF_ERROR(report_deadlock());
  RONDE_ASSIGN_OR_RETURN(const auto published, publish(data_plane_idle));
  return work + published;
}

Result<int> Coordinator::read_board() {
  const auto announced = desk_.take_announcements([this](std::int32_t position, auto bytes) {
    return on_announcement(shape_.ranks_of(kHost)[static_cast<std::size_t>(position)], bytes);
  });
  RONDE_RETURN_IF_ERROR(announced.status());
  const auto ready = desk_.take_ready([this](std::int32_t entry) {
    negotiator_.on_entry_ready(entry);
    return Status();
  });
  RONDE_RETURN_IF_ERROR(ready.status());
  return *announced + *ready;
}

Result<int> Coordinator::read_links(bool data_plane_idle) {
  const auto read =
      links_->poll([this](Links::From, const LinkMessage& message) { return on_message(message); });
  RONDE_RETURN_IF_ERROR(read.status());
  while (const auto lost = links_->take_lost()) {
    if (is_accident(*lost, somebody_left_, !data_plane_idle || far_.passes())) {
      return lost_neighbour(shape_, *lost);
    }
  }
  return *read;
}

Status Coordinator::on_message(const LinkMessage& message) {
  if (const auto* record = std::get_if<collectives::FailureRecord>(&message)) {
    desk_.board().fail(*record);
    return {};
  }
  if (const auto* relayed = std::get_if<RelayedAnnouncement>(&message)) {
    if (relayed->rank >= 0 && relayed->rank < shape_.ranks()) {
      return on_announcement(relayed->rank, relayed->announcement);
    }
  } else if (const auto* ready = std::get_if<ReadyReport>(&message)) {
    ReadyReport report = *ready;
    report.arrivals = report.arrivals.seen_at(clock_.now());
    negotiator_.on_subtree_ready(report);
    return {};
  } else if (const auto* closed = std::get_if<ClosedReport>(&message)) {
    negotiator_.on_closed(*closed);
    return {};
  } else if (const auto* frame = std::get_if<Frame>(&message)) {
    return pass_on(*frame);
  }
  return Status::error(Code::kInternal, "a message between hosts that the coordinator cannot take");
}

Status Coordinator::on_announcement(std::int32_t rank, std::span<const std::byte> bytes) {
  RONDE_ASSIGN_OR_RETURN(const auto announcement, decode_announcement(bytes));
  if (over_) return {};
  if (const auto* request = std::get_if<RequestAnnouncement>(&announcement)) {
    negotiator_.on_request(rank, *request);
  } else if (const auto* closing = std::get_if<ClosingAnnouncement>(&announcement)) {
    negotiator_.on_closing(rank, *closing);
    sets_.on_closing(rank);
  } else if (std::holds_alternative<JoinAnnouncement>(announcement)) {
    negotiator_.on_join(rank, shape_.host_of(rank) == kHost);
  } else if (const auto* standing = std::get_if<StandingAnnouncement>(&announcement)) {
    deadlock_.on_standing(rank, *standing, clock_.now());
  } else if (const auto* stalled = std::get_if<StalledAnnouncement>(&announcement)) {
    on_stalled(rank, *stalled);
  } else if (const auto* set = std::get_if<SetAnnouncement>(&announcement)) {
    sets_.on_announcement(rank, *set, clock_.now());
  } else if (const auto* ended = std::get_if<SetEndedAnnouncement>(&announcement)) {
    sets_.on_ended(rank, ended->number);
  } else if (const auto* frame = std::get_if<FrameAnnouncement>(&announcement)) {
    return pass_on({frame->number, frame->from, frame->to, frame->message});
  } else if (const auto* given_up = std::get_if<GivenUpAnnouncement>(&announcement)) {
    over_ = true;
    return post(GivenUpDecision{rank, *given_up});
  }
  return {};
}

Status Coordinator::pass_on(Frame frame) {
  if (frame.to < 0 || frame.to >= shape_.ranks() || links_ == nullptr) {
    return Status::error(Code::kInternal, "a message between two ranks for no rank of this job");
  }
  far_.on_frame(frame);
  const std::int32_t host = shape_.host_of(frame.to);
  if (host != kHost) return links_->send_towards(host, frame);
  return desk_.post(
      encode(FrameDecision{frame.number, frame.from, frame.to, std::move(frame.message)}));
}

base::Instant Coordinator::next_deadline() const {
  if (over_) return base::kNever;
  const base::Instant notice =
      std::max(notice_.at, late_.roll_called ? late_.answer_by : base::Instant());
  return std::min(
      {linger_until_, notice, batch_notice_.at, expired_.answer_by, sets_.due(), deadlock_.next()});
}

// Group commit: while the data plane is busy, tensors that become ready wait and go in one batch.
Result<int> Coordinator::publish(bool data_plane_idle) {
  int work = 0;
  if (sets_.due() != base::kNever) sets_.check(clock_.now());
  // Sets first: a rank that departs has asked before.
  for (const Decision& decision : sets_.take_decisions()) {
    RONDE_RETURN_IF_ERROR(post(decision));
    ++work;
  }
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
  RONDE_RETURN_IF_ERROR(flush());
  return work;
}

Status Coordinator::flush() {
  RONDE_RETURN_IF_ERROR(desk_.flush());
  if (links_ == nullptr) return {};
  RONDE_ASSIGN_OR_RETURN(links_drained_, links_->flush());
  return {};
}

bool Coordinator::lingers() {
  if (config_.linger.count() == 0) return false;
  if (linger_until_ == base::kNever) linger_until_ = clock_.after(config_.linger);
  if (clock_.now() < linger_until_) return true;
  linger_until_ = base::kNever;
  return false;
}

Status Coordinator::post(const Decision& decision) {
  if (const auto* departed = std::get_if<DepartedDecision>(&decision)) {
    somebody_left_ = true;
    far_.on_departed(*departed);
  }
  std::vector<std::byte> bytes = encode(decision);
  // The ranks of this host need no CloseDecision: the negotiator has closed their words itself.
  if (!std::holds_alternative<CloseDecision>(decision)) RONDE_RETURN_IF_ERROR(desk_.post(bytes));
  return links_ == nullptr ? Status() : links_->send_down(RelayedDecision{std::move(bytes)});
}

}  // namespace ronde::runtime
