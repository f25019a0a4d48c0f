// SPDX-License-Identifier: Apache-2.0
// The in-memory transport: the hub's mailboxes and faults, and the ranks' ends of it.
#include "collectives/transport/local.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "collectives/transport/end_table.h"

namespace ronde::collectives {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

LocalHub::LocalHub(int size, FaultPlan plan)
    : size_(size), plan_(std::move(plan)), random_(plan_.seed) {
  base::check(size > 0, "LocalHub: at least one rank");
}

bool LocalHub::is_cut(const Pair& pair) const {
  const auto found = messages_of_pair_.find(pair);
  const std::int64_t messages = found == messages_of_pair_.end() ? 0 : found->second;
  return std::any_of(plan_.cuts.begin(), plan_.cuts.end(), [&](const FaultPlan::Cut& cut) {
    return pair_of(cut.a, cut.b) == pair && messages >= cut.after_messages;
  });
}

int LocalHub::draw() {
  if (plan_.max_delay == 0) return 0;
  return std::uniform_int_distribution<int>(0, plan_.max_delay)(random_);
}

int LocalHub::draw_delay() {
  const MutexLock lock(mutex_);
  return draw();
}

std::optional<std::int64_t> LocalHub::deliver(const Route& route, std::span<const std::byte> data) {
  // The copy is made before the lock is taken, since it alone takes long.
  Message message{.data = {data.begin(), data.end()}, .delay = 0};
  const MutexLock lock(mutex_);
  const Pair between = pair_of(route.from, route.to);
  if (is_cut(between)) return std::nullopt;
  ++messages_of_pair_[between];
  const std::int64_t number = messages_in_direction_[{route.from, route.to}]++;
  for (const FaultPlan::WrongLength& wrong : plan_.wrong_lengths) {
    if (wrong.from == route.from && wrong.to == route.to && wrong.message == number) {
      message.data.push_back(std::byte{0});
    }
  }
  message.delay = draw();
  Mailbox& mailbox = mailboxes_[route];
  mailbox.messages.emplace(mailbox.sent, std::move(message));
  return mailbox.sent++;
}

LocalHub::Pickup LocalHub::poll_send(const Route& route, std::int64_t number) {
  const MutexLock lock(mutex_);
  if (!plan_.synchronous_sends) return Pickup::kTaken;
  if (!mailboxes_[route].messages.contains(number)) return Pickup::kTaken;
  return is_cut(pair_of(route.from, route.to)) ? Pickup::kCut : Pickup::kNotYet;
}

std::int64_t LocalHub::number_receive(const Route& route) {
  const MutexLock lock(mutex_);
  return mailboxes_[route].awaited++;
}

LocalHub::PickupResult LocalHub::pick_up(const Route& route, std::int64_t number,
                                         std::span<std::byte> to) {
  const MutexLock lock(mutex_);
  Mailbox& mailbox = mailboxes_[route];
  const auto found = mailbox.messages.find(number);
  if (found == mailbox.messages.end()) {
    return {is_cut(pair_of(route.from, route.to)) ? Pickup::kCut : Pickup::kNotYet, 0};
  }
  if (found->second.delay > 0) {
    --found->second.delay;
    return {Pickup::kNotYet, 0};
  }
  const Message message = std::move(found->second);
  mailbox.messages.erase(found);
  if (message.data.size() != to.size()) return {Pickup::kWrongLength, message.data.size()};
  if (!to.empty()) std::memcpy(to.data(), message.data.data(), to.size());
  return {Pickup::kTaken, to.size()};
}

LocalEnd::LocalEnd(std::shared_ptr<LocalHub> hub, int rank, OnArrival on_arrival)
    : hub_(std::move(hub)), rank_(rank), on_arrival_(std::move(on_arrival)) {
  base::check(rank >= 0 && rank < hub_->size(), "LocalEnd: no such rank");
}

Status LocalEnd::cut_error(const char* activity, int peer, int tag) const {
  return Status::error(Code::kTransport, "the link between rank " + std::to_string(rank_) +
                                             " and rank " + std::to_string(peer) +
                                             " is cut: " + activity + " with tag " +
                                             std::to_string(tag) + " failed; restart the job")
      .with_rank(peer);
}

Result<LocalEnd::Request> LocalEnd::send(int peer, int tag, std::span<const std::byte> data) {
  base::check(peer >= 0 && peer < hub_->size(), "LocalEnd: no such peer");
  const std::optional<std::int64_t> number =
      hub_->deliver({.from = rank_, .to = peer, .tag = tag}, data);
  // The other rank is notified of a cut as well, since its requests fail too.
  if (on_arrival_) on_arrival_(peer);
  if (!number) return cut_error("a send", peer, tag);
  pending_.emplace(next_request_, Pending{.peer = peer,
                                          .tag = tag,
                                          .is_receive = false,
                                          .data = {},
                                          .number = *number,
                                          .delay = hub_->draw_delay()});
  return next_request_++;
}

Result<LocalEnd::Request> LocalEnd::receive(int peer, int tag, std::span<std::byte> data) {
  base::check(peer >= 0 && peer < hub_->size(), "LocalEnd: no such peer");
  const std::int64_t number = hub_->number_receive({.from = peer, .to = rank_, .tag = tag});
  pending_.emplace(next_request_, Pending{.peer = peer,
                                          .tag = tag,
                                          .is_receive = true,
                                          .data = data,
                                          .number = number,
                                          .delay = 0});
  return next_request_++;
}

Result<bool> LocalEnd::test(Request request) {
  const auto found = pending_.find(request);
  base::check(found != pending_.end(), "LocalEnd: a request that is not outstanding");
  Pending& pending = found->second;
  Result<bool> done = pending.is_receive ? test_receive(pending) : test_send(pending);
  if (!done.ok() || *done) pending_.erase(found);
  return done;
}

Result<bool> LocalEnd::test_send(Pending& pending) {
  if (pending.delay > 0) {
    --pending.delay;
    return false;
  }
  const LocalHub::Route route{.from = rank_, .to = pending.peer, .tag = pending.tag};
  const LocalHub::Pickup what = hub_->poll_send(route, pending.number);
  if (what == LocalHub::Pickup::kCut) return cut_error("a send", pending.peer, pending.tag);
  return what == LocalHub::Pickup::kTaken;
}

Result<bool> LocalEnd::test_receive(const Pending& pending) {
  const LocalHub::Route route{.from = pending.peer, .to = rank_, .tag = pending.tag};
  const LocalHub::PickupResult result = hub_->pick_up(route, pending.number, pending.data);
  switch (result.what) {
    case LocalHub::Pickup::kNotYet:
      return false;
    case LocalHub::Pickup::kTaken:
      // A synchronous send of the other rank finishes with this.
      if (hub_->sends_are_synchronous() && on_arrival_) on_arrival_(pending.peer);
      return true;
    case LocalHub::Pickup::kCut:
      return cut_error("a receive", pending.peer, pending.tag);
    case LocalHub::Pickup::kWrongLength:
      break;
  }
  return Status::error(Code::kTransport,
                       "a message from rank " + std::to_string(pending.peer) + " to rank " +
                           std::to_string(rank_) + " with tag " + std::to_string(pending.tag) +
                           " has " + std::to_string(result.length) + " bytes where " +
                           std::to_string(pending.data.size()) +
                           " were expected; this is a bug in Ronde, please report it")
      .with_rank(pending.peer);
}

Transport local_transport(const std::shared_ptr<LocalHub>& hub, int rank,
                          LocalEnd::OnArrival on_arrival) {
  return transport_over(std::make_unique<LocalEnd>(hub, rank, std::move(on_arrival)), rank,
                        hub->size(), hub->delays(), hub->largest_tag());
}

}  // namespace ronde::collectives
