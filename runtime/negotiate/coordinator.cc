// SPDX-License-Identifier: Apache-2.0
// The coordinator's step: reading announcements, reporting stalls, and group commit of batches.
#include "runtime/negotiate/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "runtime/negotiate/relay.h"
#include "runtime/negotiate/stopped.h"

namespace ronde::runtime {

using base::Code;
using base::Nanoseconds;
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
  const collectives::ArrivalCount arrival = board_.arrival(entry);
  board_.reset(entry, arrival.generation, static_cast<std::uint32_t>(board_.ranks()));
}

std::uint32_t Coordinator::BoardArrivals::count(std::int32_t entry) {
  return board_.arrival(entry).count;
}

bool Coordinator::BoardArrivals::has_arrived(std::int32_t rank, std::int32_t entry,
                                             std::uint64_t last_batch) {
  return shape_.host_of(rank) == kHost &&
         board_.has_arrived(shape_.position_of(rank), entry, last_batch);
}

Coordinator::Coordinator(const collectives::Board& board, const collectives::JobShape& shape,
                         Links* links, const base::Config& config, const base::Clock& clock)
    : shape_(shape),
      links_(links),
      config_(config),
      clock_(clock),
      desk_(board),
      arrivals_(board, shape),
      negotiator_(shape.ranks(), {board.ranks(), links == nullptr ? 0 : links->children()},
                  config.plan_capacity, arrivals_) {}

Result<int> Coordinator::step(bool data_plane_idle) {
  const auto announced = read_board();
  RONDE_RETURN_IF_ERROR(announced.status());
  int work = *announced;
  if (links_ != nullptr) {
    const auto read = read_links(data_plane_idle);
    RONDE_RETURN_IF_ERROR(read.status());
    work += *read;
  }
  if (!stalls_.empty()) RONDE_RETURN_IF_ERROR(report_stalls());
  const auto published = publish(data_plane_idle);
  RONDE_RETURN_IF_ERROR(published.status());
  return work + *published;
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
    if (is_accident(*lost, somebody_left_, data_plane_idle)) return lost_neighbour(shape_, *lost);
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
    negotiator_.on_subtree_ready(ready->entry, ready->generation);
    return {};
  } else if (const auto* closed = std::get_if<ClosedReport>(&message)) {
    negotiator_.on_closed(closed->entry, closed->generation, closed->arrived, closed->ranks);
    return {};
  }
  return Status::error(Code::kInternal, "a message between hosts that the coordinator cannot take");
}

Status Coordinator::on_announcement(std::int32_t rank, std::span<const std::byte> bytes) {
  const auto announcement = decode_announcement(bytes);
  RONDE_RETURN_IF_ERROR(announcement.status());
  if (const auto* request = std::get_if<RequestAnnouncement>(&*announcement)) {
    negotiator_.on_request(rank, *request);
  } else if (const auto* closing = std::get_if<ClosingAnnouncement>(&*announcement)) {
    negotiator_.on_closing(rank, closing->forced);
  } else {
    stalls_.push_back({rank, std::get<StalledAnnouncement>(*announcement)});
  }
  return {};
}

Status Coordinator::report_stalls() {
  std::vector<Stall> unclear;
  for (Stall& stall : std::exchange(stalls_, {})) {
    if (negotiator_.find_out(stall.announced.name)) {
      RONDE_RETURN_IF_ERROR(report(stall));
      continue;
    }
    const auto again = find_silent_host(stall);
    RONDE_RETURN_IF_ERROR(again.status());
    if (*again) unclear.push_back(stall);
  }
  stalls_ = std::move(unclear);
  return {};
}

// Called while a host has not answered which of its ranks wait: calls the roll, and names a
// neighbour that does not answer it, in a warning or in the error that ends the job. True: call it
// again later; false: the stall has been reported.
Result<bool> Coordinator::find_silent_host(Stall& stall) {
  if (!stall.roll_called) {
    stall.roll_called = true;
    stall.answer_by = clock_.after(kRollCallGrace);
    RONDE_RETURN_IF_ERROR(links_->call_roll());
    return true;
  }
  if (clock_.now() < stall.answer_by) return true;
  stall.answer_by = base::kNever;
  const auto silent = links_->silent();
  const std::string late = "'" + stall.announced.name + "' has waited for " +
                           seconds_text(Nanoseconds(stall.announced.waited_ns));
  if (stall.announced.failed) {
    // The silent host is further down the tree: its own neighbours find it, or the deadline of the
    // rank that waits ends the job.
    if (silent.empty()) return true;
    return silent_neighbour(shape_, silent.front(), late);
  }
  const std::string who =
      silent.empty() ? "a host does not answer which of its ranks have submitted it"
                     : silent.front().peer + " " + silent.front().reason + " and may stand still";
  RONDE_RETURN_IF_ERROR(notice(stall.announced.name, late + "; " + who));
  return false;
}

// Every rank that waits reports the same stall, but one line of output is enough.
Status Coordinator::notice(const std::string& name, const std::string& text) {
  const base::Instant now = clock_.now();
  std::erase_if(noticed_, [&](const auto& each) { return each.second <= now; });
  const bool fresh = noticed_.emplace(name, now + config_.stall_warning).second;
  return fresh ? post(NoticeDecision{name, text}) : Status();
}

// " (on host node3)", " (on hosts node3, node5)"
std::string Coordinator::hosts_phrase(const std::vector<std::int32_t>& ranks) const {
  std::set<std::int32_t> hosts;
  for (const std::int32_t rank : ranks) hosts.insert(shape_.host_of(rank));
  std::string text = hosts.size() == 1 ? " (on host" : " (on hosts";
  for (const std::int32_t host : hosts) {
    text += (host == *hosts.begin() ? " " : ", ") + shape_.host_name(host);
  }
  return text + ")";
}

base::Instant Coordinator::next_deadline() const {
  base::Instant next = linger_until_;
  for (const Stall& stall : stalls_) next = std::min(next, stall.answer_by);
  return next;
}

Status Coordinator::report(const Stall& stall) {
  const StalledAnnouncement& announced = stall.announced;
  const auto waiting = negotiator_.waiting_for(announced.name);
  if (!waiting) return {};  // the tensor is in a batch or about to be
  const std::string late =
      "'" + announced.name + "' has waited for " + seconds_text(Nanoseconds(announced.waited_ns));
  if (waiting->missing.empty()) {
    // The last rank counted itself in but has not reported the entry: it stopped in between. The
    // ranks of its host find it by its process state.
    if (announced.failed) return {};
    return notice(announced.name,
                  late + ": a rank may have stopped in the middle of submitting it");
  }
  std::string text = late + ": submitted on " + ranks_phrase(waiting->ready) + ", not yet on " +
                     ranks_phrase(waiting->missing);
  if (shape_.hosts() > 1) text += hosts_phrase(waiting->missing);
  std::string stopped;
  std::int32_t culprit = waiting->missing.front();
  for (const std::int32_t missing : waiting->missing) {
    if (!is_here(missing)) continue;
    const auto presence = desk_.board().presence(shape_.position_of(missing));
    if (!presence.activity.empty()) {
      text += "; rank " + std::to_string(missing) + " was last " + presence.activity;
    }
    const std::string stands_still = stopped_text(missing, presence);
    if (stopped.empty() && !stands_still.empty()) culprit = missing;
    stopped += stands_still;
  }
  text += stopped;
  if (!announced.failed) return notice(announced.name, text);
  collectives::FailureRecord record;
  record.culprit = culprit;
  record.reporter = stall.rank;
  record.code = Code::kDeadline;
  record.text = text + ". This is the deadline of RONDE_STALL_FAILURE_SECONDS";
  desk_.board().fail(record);
  return {};
}

// Group commit: while the data plane is busy, tensors that become ready wait and go in one batch.
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
  RONDE_RETURN_IF_ERROR(flush());
  return work;
}

Status Coordinator::flush() {
  RONDE_RETURN_IF_ERROR(desk_.flush());
  if (links_ == nullptr) return {};
  const auto flushed = links_->flush();
  RONDE_RETURN_IF_ERROR(flushed.status());
  links_drained_ = *flushed;
  return {};
}

bool Coordinator::lingers() {
  if (config_.linger.count() == 0) return false;
  if (linger_until_ == base::kNever) linger_until_ = clock_.after(config_.linger);
  if (clock_.now() < linger_until_) return true;
  linger_until_ = base::kNever;
  return false;
}

bool Coordinator::is_here(std::int32_t rank) const { return shape_.host_of(rank) == kHost; }

Status Coordinator::post(const Decision& decision) {
  if (std::holds_alternative<DepartedDecision>(decision)) somebody_left_ = true;
  std::vector<std::byte> bytes = encode(decision);
  // The ranks of this host need no CloseDecision: the negotiator has closed their words itself.
  if (!std::holds_alternative<CloseDecision>(decision)) RONDE_RETURN_IF_ERROR(desk_.post(bytes));
  return links_ == nullptr ? Status() : links_->send_down(RelayedDecision{std::move(bytes)});
}

}  // namespace ronde::runtime
