// SPDX-License-Identifier: Apache-2.0
// Messages from and to other hosts (far_channel.h).
#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "runtime/messages/messages.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::MutexLock;
using base::Status;

Status Messages::on_frame(std::int32_t from, std::span<const std::byte> frame) {
  const auto received = read_record(frame);
  if (!received || from < 0 || from >= context_.shape.ranks() || !is_far(from)) {
    return Status::error(Code::kInternal, "a record of a message between hosts is corrupt");
  }
  Finished finished;
  Status status;
  {
    const MutexLock lock(mutex_);
    if (!failed_.ok()) return {};
    in_use_.store(true, std::memory_order_release);
    news_of_far_ = true;
    status = on_record(from, *received, finished);
  }
  end(finished);
  return status;
}

void Messages::on_departed(std::int32_t rank, bool left) {
  if (rank < 0 || rank >= context_.shape.ranks() || !is_far(rank)) return;
  const MutexLock lock(mutex_);
  const Departure departure{rank, left,
                            context_.set == nullptr ? Instant() : context_.clock.after(kFarGrace)};
  departures_.push_back(departure);
  next_look_.store(std::min(next_look_.load(std::memory_order_relaxed), departure.counts_at),
                   std::memory_order_relaxed);
  take_departures();
}

void Messages::take_departures() {
  if (departures_.empty()) return;
  const Instant now = context_.clock.now();
  while (!departures_.empty() && departures_.front().counts_at <= now) {
    Peer& peer = peers_[base::narrow<std::size_t>(departures_.front().rank)];
    peer.ended = true;
    peer.gone = peer.gone || departures_.front().left;
    departures_.pop_front();
    any_ended_ = true;
    news_of_far_ = true;
  }
}

bool Messages::has_left(std::int32_t rank) const {
  if (is_far(rank)) return peers_[base::narrow<std::size_t>(rank)].gone;
  return context_.board.state(position_of(rank)) == collectives::PresenceState::kClosed;
}

// A small message is given to its receiver.
Status Messages::take(std::int32_t from, std::size_t bytes) {
  Peer& peer = peers_[base::narrow<std::size_t>(from)];
  if (!is_far(from)) {
    peer.in->take(bytes);
    return {};
  }
  if (!peer.taken.take_message(bytes)) return {};
  RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(from));
  return out->post(peer.taken.tell(), {});
}

Status Messages::take_chunk(std::int32_t from) {
  Peer& peer = peers_[base::narrow<std::size_t>(from)];
  if (!peer.taken.take_chunk()) return {};
  RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(from));
  return out->post(peer.taken.tell(), {});
}

Status Messages::on_taken(std::int32_t from, const Record& record) {
  RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(from));
  out->on_taken(record);
  return {};
}

// Asks for the large messages that wait for it, as many as may come at a time.
Status Messages::grant() {
  while (granted_ < kMostGranted && !ungranted_.empty()) {
    const OperationPtr operation = ungranted_.front();
    ungranted_.pop_front();
    chunked_.emplace(std::pair(operation->peer, operation->offer.id), operation);
    ++granted_;
    RONDE_RETURN_IF_ERROR(answer(operation->peer, RecordKind::kSend, operation->offer.id));
  }
  return {};
}

// ---- late messages ----

Status Messages::on_ask(std::int32_t from) {
  std::int32_t stopped = -1;
  const std::string text = stopped_here(&stopped, -1);
  RONDE_ASSIGN_OR_RETURN(Outgoing* const out, channel_to(from));
  return out->post({.kind = RecordKind::kState, .code = stopped}, std::as_bytes(std::span(text)));
}

void Messages::on_state(std::int32_t from, const Received& received) {
  HostState& host = hosts_[context_.shape.host_of(from)];
  host.answered = true;
  host.stopped = received.record.code;
  host.text.assign(reinterpret_cast<const char*>(received.bytes.data()), received.bytes.size());
  next_look_.store(Instant(), std::memory_order_relaxed);
}

// The other hosts on which the rank is, or may be, for which this waits.
std::vector<std::int32_t> Messages::far_hosts_of(const Operation& operation) const {
  std::vector<std::int32_t> hosts;
  if (operation.peer >= 0) {
    if (is_far(operation.peer)) hosts.push_back(context_.shape.host_of(operation.peer));
    return hosts;
  }
  for (std::int32_t host = 0; host < context_.shape.hosts(); ++host) {
    if (host != context_.shape.host_of(context_.rank)) hosts.push_back(host);
  }
  return hosts;
}

// Whether what can be known of the cause is known, since when this was due. Otherwise asks, and is
// to be called again.
bool Messages::has_asked(const Operation& operation, Instant due, bool fails) {
  std::int32_t stopped = -1;
  if (context_.shape.hosts() == 1 || !stopped_here(&stopped, -1).empty()) return true;
  const Instant now = context_.clock.now();
  // One who waits for the rank that does not answer knows it before the others.
  bool all = !fails || now - due >= 2 * kFarGrace;
  for (const std::int32_t host : far_hosts_of(operation)) {
    HostState& state = hosts_[host];
    if (state.asked < due - kFarGrace / 4) {
      state = {now, false, -1, ""};
      const auto out = channel_to(context_.shape.leader_of(host));
      if (out.ok()) (*out)->post({.kind = RecordKind::kAsk}, {}).ignore();
    }
    const bool silent = !state.answered && now - state.asked >= kFarGrace;
    if (fails && (silent || state.stopped >= 0)) return true;
    all = all && (silent || state.answered);
  }
  return all;
}

std::string Messages::far_text(const Operation& operation, std::int32_t* culprit) const {
  std::string text;
  for (const std::int32_t host : far_hosts_of(operation)) {
    const auto found = hosts_.find(host);
    if (found == hosts_.end()) continue;
    const HostState& state = found->second;
    const std::int32_t leader = context_.shape.leader_of(host);
    const std::int32_t cause = state.answered ? state.stopped : leader;
    if (*culprit < 0) *culprit = cause;
    text += state.answered
                ? state.text
                : "; rank " + std::to_string(leader) + " (host " + context_.shape.host_name(host) +
                      ") does not answer: it is stopped, its machine is stuck, or the "
                      "line to it is cut";
  }
  return text;
}

}  // namespace ronde::runtime
