// SPDX-License-Identifier: Apache-2.0
// The door's step: listeners, and strangers between their first byte and their hello.
#include "base/wire/door.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/numbers.h"

namespace ronde::base {

namespace {

// How many connections are accepted in one step, so that others are read in between.
constexpr int kAcceptedInATurn = 64;

}  // namespace

Accepted accept_over_tcp(const FileDescriptor& listener, const Keepalive& keepalive) {
  Accepted accepted{accept_next(listener, keepalive), "", false};
  if (!accepted.socket.valid()) return accepted;
  const auto from = other_end(accepted.socket);
  accepted.from = from ? text_of(*from) : "a socket";
  return accepted;
}

Door::Door(DoorPlan plan)
    : plan_(std::move(plan)),
      most_strangers_(narrow<std::size_t>(std::max(kFewestStrangers, plan_.guests))) {}

void Door::watch(std::vector<pollfd>& entries) const {
  for (const FileDescriptor* one : plan_.listeners) entries.push_back({one->get(), POLLIN, 0});
  for (const Stranger& one : strangers_) entries.push_back({one.socket.get(), POLLIN, 0});
}

Status Door::step(std::span<const pollfd> entries, Instant now, std::vector<Guest>& guests) {
  const std::size_t listeners = plan_.listeners.size();
  const std::size_t heard = strangers_.size();
  for (std::size_t i = 0; i < heard; ++i) {
    Stranger& stranger = strangers_[i];
    if (entries[listeners + i].revents != 0) read(stranger, guests);
    if (stranger.socket.valid() && now - stranger.since >= kTime) {
      turn_away(stranger, "no whole hello arrived within 5 s");
    }
  }
  std::erase_if(strangers_, [](const Stranger& one) { return !one.socket.valid(); });
  for (std::size_t i = 0; i < listeners; ++i) {
    if (entries[i].revents == 0) continue;
    RONDE_RETURN_IF_ERROR(accept_some(*plan_.listeners[i], now, guests));
  }
  return {};
}

void Door::close_oldest() {
  // First one that has not begun; one that has proved that it knows the secret would not try again.
  auto oldest =
      std::ranges::find_if(strangers_, [](const auto& one) { return !one.reader.begun(); });
  if (oldest == strangers_.end()) {
    oldest = std::ranges::find_if(strangers_, [](const Stranger& one) { return !one.proven; });
  }
  if (oldest == strangers_.end()) oldest = strangers_.begin();
  turn_away(*oldest, "too many others were waiting");
  strangers_.erase(oldest);
}

Status Door::accept_some(const FileDescriptor& listener, Instant now, std::vector<Guest>& guests) {
  for (int i = 0; i < kAcceptedInATurn; ++i) {
    Accepted accepted = plan_.accept(listener);
    if (!accepted.socket.valid()) {
      const int error = errno;
      if (error == EAGAIN) return {};
      if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS) {
        continue;  // the error is about a connection that ended before it was accepted
      }
      if (strangers_.empty()) return Status::system("could not accept another connection", error);
      close_oldest();
      continue;
    }
    RONDE_ASSIGN_OR_RETURN(const auto nonce, make_nonce());
    strangers_.push_back({std::move(accepted.socket), std::move(accepted.from), now,
                          HelloReader(Handshake::Role::kListener, plan_.secret, nonce)});
    Stranger& stranger = strangers_.back();
    if (accepted.of_another_user) turn_away(stranger, "it was another user's");
    // The first message has usually arrived with the connection.
    if (stranger.socket.valid()) read(stranger, guests);
    if (!stranger.socket.valid()) strangers_.pop_back();
    if (strangers_.size() > most_strangers_) close_oldest();
  }
  return {};
}

void Door::read(Stranger& stranger, std::vector<Guest>& guests) {
  using Got = HelloReader::Got;
  Got got = stranger.reader.read(stranger.socket);
  if (got == Got::kProven) {
    stranger.proven = true;
    got = stranger.reader.read(stranger.socket);
  }
  switch (got) {
    case Got::kPart:
    case Got::kProven:
      return;
    case Got::kGarbage:
      return turn_away(stranger, "what was sent is not Ronde's protocol");
    case Got::kVersion:
      return turn_away(stranger, kOtherVersion);
    case Got::kSecret:
      return turn_away(stranger, plan_.secret_name + " was not this job's");
    case Got::kEnd:
      return turn_away(stranger, "the other end closed it before a whole hello");
    case Got::kHello:
      const auto hello = stranger.reader.hello();
      guests.push_back({std::move(stranger.socket), stranger.from, {hello.begin(), hello.end()}});
  }
}

void Door::turn_away(Stranger& stranger, const std::string& reason) {
  count(reason, stranger.from);
  stranger.socket.reset();
}

void Door::count(const std::string& reason, const std::string& from, LogLevel level) {
  Count& one = counts_[reason];
  ++one.times;
  one.last_from = from;
  one.level = level;
}

std::string Door::text_of(const std::string& reason, const Count& count) {
  return std::to_string(count.times) +
         (count.times == 1 ? " connection was" : " connections were") + " turned away: " + reason +
         " (last from " + count.last_from + ")";
}

void Door::report(const Log& log, Report what) {
  for (auto& [reason, one] : counts_) {
    if (what == Report::kNewReasons && one.reported > 0) continue;
    if (std::exchange(one.reported, one.times) == one.times) continue;
    log.log(one.level, plan_.during + ", " + text_of(reason, one));
  }
}

void Door::send_to_proven(std::span<const std::byte> frame) const {
  for (const Stranger& one : strangers_) {
    if (one.proven) (void)send_hello(one.socket, frame);
  }
}

std::string Door::turned_away() {
  std::string text;
  for (auto& [reason, one] : counts_) {
    one.reported = one.times;
    text += "; " + text_of(reason, one);
  }
  return text;
}

}  // namespace ronde::base
