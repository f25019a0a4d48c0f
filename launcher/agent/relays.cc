// SPDX-License-Identifier: Apache-2.0
// The sockets of relayed connections. A connection that finds nobody is closed: a rank that comes
// before rank 0 tries again.
#include "launcher/agent/relays.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/wire/unix_socket.h"

namespace ronde::launcher {

namespace {

constexpr std::size_t kRelayPiece = std::size_t{64} << 10U;

void say(Channel& ronderun, std::int64_t id, Relay::What what, std::string bytes = {}) {
  ronderun.send(encode(Relay{id, what, std::move(bytes)}));
}

bool is_over(ssize_t size) { return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR); }

}  // namespace

std::string meeting_of(const std::string& job) { return "job-" + job; }

base::Status Relays::listen() {
  RONDE_ASSIGN_OR_RETURN(listener_, base::listen_abstract(name_));
  return {};
}

void Relays::add_to(std::vector<pollfd>& entries) const {
  if (listener_.valid()) entries.push_back({listener_.get(), POLLIN, 0});
  for (const auto& [id, line] : lines_) {
    const int events = line.pending.empty() ? POLLIN : POLLIN | POLLOUT;
    entries.push_back({line.socket.get(), static_cast<short>(events), 0});
  }
}

void Relays::serve(const std::vector<pollfd>& entries, Channel& ronderun) {
  for (const pollfd& entry : entries) {
    if (entry.revents == 0) continue;
    if (listener_.valid() && entry.fd == listener_.get()) accept(ronderun);
    for (auto at = lines_.begin(); at != lines_.end();) {
      auto& [id, line] = *at;
      const bool goes_on =
          line.socket.get() != entry.fd || (write(line) && read(id, line, ronderun));
      if (!goes_on) say(ronderun, id, Relay::What::kClose);
      at = goes_on ? std::next(at) : lines_.erase(at);
    }
  }
}

void Relays::accept(Channel& ronderun) {
  for (;;) {
    base::Accepted guest = base::accept_member(listener_);
    if (!guest.socket.valid()) return;
    if (guest.of_another_user) continue;
    lines_[++next_].socket = std::move(guest.socket);
    say(ronderun, next_, Relay::What::kOpen);
  }
}

bool Relays::write(Line& line) {
  while (!line.pending.empty()) {
    const ssize_t size = ::send(line.socket.get(), line.pending.data(), line.pending.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (is_over(size)) return false;
    if (size < 0) break;
    line.pending.erase(0, static_cast<std::size_t>(size));
  }
  return true;
}

bool Relays::read(std::int64_t id, Line& line, Channel& ronderun) {
  std::array<char, kRelayPiece> bytes{};
  const ssize_t size = ::recv(line.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (is_over(size)) return false;
  if (size > 0) {
    say(ronderun, id, Relay::What::kBytes, {bytes.data(), static_cast<std::size_t>(size)});
  }
  return true;
}

void Relays::take(const Relay& message, Channel& ronderun, const base::Clock& clock) {
  const std::int64_t id = message.connection;
  if (message.what == Relay::What::kOpen) {
    auto socket = base::connect_abstract(name_, clock, clock.now());
    if (!socket.ok()) return say(ronderun, id, Relay::What::kClose);
    lines_[id].socket = std::move(*socket);
    return;
  }
  const auto line = lines_.find(id);
  if (line == lines_.end()) return;
  line->second.pending += message.bytes;
  const bool goes_on = write(line->second);
  if (!goes_on) say(ronderun, id, Relay::What::kClose);
  if (!goes_on || message.what == Relay::What::kClose) lines_.erase(line);
}

}  // namespace ronde::launcher
