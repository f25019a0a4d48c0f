// SPDX-License-Identifier: Apache-2.0
// Messages over the neighbours' frame sockets, watched by one epoll.
#include "runtime/links/tcp_links.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/numbers.h"

namespace ronde::runtime {

using base::Result;
using base::Status;

namespace {

// How long a last message may wait for a socket that is full.
constexpr int kLastMessageMilliseconds = 200;

}  // namespace

Result<std::unique_ptr<TcpLinks>> TcpLinks::open(LinkEnds ends) {
  std::unique_ptr<TcpLinks> links(new TcpLinks);
  links->epoll_ = base::FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (links->epoll_.get() < 0) return Status::system("epoll_create1", errno);
  links->has_parent_ = ends.parent.has_value();
  if (ends.parent) RONDE_RETURN_IF_ERROR(links->add(std::move(*ends.parent)));
  for (base::LinkEnd& child : ends.children) RONDE_RETURN_IF_ERROR(links->add(std::move(child)));
  for (Neighbour& neighbour : links->neighbours_) {
    RONDE_RETURN_IF_ERROR(links->watch(neighbour, true));
  }
  return links;
}

Status TcpLinks::add(base::LinkEnd end) {
  neighbours_.push_back(Neighbour{base::FrameSocket(std::move(end))});
  return {};
}

TcpLinks::From TcpLinks::side_of(const Neighbour& neighbour) const {
  return has_parent_ && &neighbour == neighbours_.data() ? From::kParent : From::kChild;
}

std::int32_t TcpLinks::children() const {
  return base::narrow<std::int32_t>(neighbours_.size()) - (has_parent_ ? 1 : 0);
}

// A lost link is no longer watched, because its descriptor stays readable.
Status TcpLinks::watch(Neighbour& neighbour, bool add) {
  epoll_event event{};
  event.events = EPOLLIN | (neighbour.wants_room ? EPOLLOUT : 0U);
  event.data.u64 = static_cast<std::uint64_t>(&neighbour - neighbours_.data());
  const int what = neighbour.lost ? EPOLL_CTL_DEL : add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(epoll_.get(), what, neighbour.link.fd(), &event) == 0) return {};
  return Status::system("watching the connection to " + neighbour.link.peer(), errno);
}

Result<int> TcpLinks::poll(const Take& take) {
  std::array<epoll_event, 32> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  int work = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events.at(static_cast<std::size_t>(i));
    Neighbour& neighbour = neighbours_.at(event.data.u64);
    if ((event.events & EPOLLOUT) != 0) ++work;  // flush() can go on
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) continue;
    RONDE_ASSIGN_OR_RETURN(const auto read, this->read(neighbour, take));
    work += read;
  }
  return work;
}

Result<int> TcpLinks::read(Neighbour& neighbour, const Take& take) {
  int work = 0;
  while (true) {
    RONDE_ASSIGN_OR_RETURN(const auto frame, neighbour.link.receive());
    if (!frame.has_value()) break;
    const auto message = decode_link_message(*frame);
    if (!message.ok()) {
      return Status::error(base::Code::kTransport, "from " + neighbour.link.peer(),
                           message.status());
    }
    ++work;
    if (std::holds_alternative<GoodBye>(*message)) {
      neighbour.good_bye = true;
      continue;
    }
    if (const auto* roll_call = std::get_if<RollCall>(&*message)) {
      neighbour.answered = neighbour.answered || roll_call->answer;
      if (roll_call->answer) continue;
      RONDE_RETURN_IF_ERROR(neighbour.link.queue(encode(LinkMessage(RollCall{true}))));
      continue;
    }
    RONDE_RETURN_IF_ERROR(take(side_of(neighbour), *message));
  }
  return neighbour.link.closed() ? work + 1 : work;
}

Status TcpLinks::send_up(const LinkMessage& message) {
  return neighbours_.front().link.queue(encode(message));
}

Status TcpLinks::send_down(const LinkMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  for (Neighbour& neighbour : neighbours_) {
    if (side_of(neighbour) == From::kChild) RONDE_RETURN_IF_ERROR(neighbour.link.queue(bytes));
  }
  return {};
}

Status TcpLinks::send_towards(std::int32_t host, const LinkMessage& message) {
  for (Neighbour& neighbour : neighbours_) {
    if (side_of(neighbour) == From::kChild && neighbour.link.host() == host) {
      return neighbour.link.queue(encode(message));
    }
  }
  return send_down(message);
}

Result<bool> TcpLinks::flush() {
  bool all = true;
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.lost || neighbour.link.closed()) continue;
    RONDE_ASSIGN_OR_RETURN(const auto flushed, neighbour.link.flush());
    all = all && flushed;
    const bool wants_room = !flushed && !neighbour.link.closed();
    if (wants_room == neighbour.wants_room) continue;
    neighbour.wants_room = wants_room;
    RONDE_RETURN_IF_ERROR(watch(neighbour, false));
  }
  return all;
}

std::optional<TcpLinks::Lost> TcpLinks::take_lost() {
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.lost || !neighbour.link.closed()) continue;
    neighbour.lost = true;
    watch(neighbour, false).ignore();
    return Lost{side_of(neighbour), neighbour.link.host(), neighbour.link.peer(),
                neighbour.link.close_reason(), neighbour.good_bye};
  }
  return std::nullopt;
}

// Only one roll call runs at a time: another would clear answers that its caller has not read yet.
Status TcpLinks::call_roll() {
  const bool under_way =
      std::any_of(neighbours_.begin(), neighbours_.end(),
                  [](const Neighbour& each) { return !each.answered && !each.lost; });
  if (under_way) return {};
  const std::vector<std::byte> bytes = encode(LinkMessage(RollCall{false}));
  for (Neighbour& neighbour : neighbours_) {
    neighbour.answered = neighbour.lost;
    if (!neighbour.lost) RONDE_RETURN_IF_ERROR(neighbour.link.queue(bytes));
  }
  return {};
}

std::vector<TcpLinks::Lost> TcpLinks::silent() const {
  std::vector<Lost> silent;
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.answered || neighbour.lost) continue;
    silent.push_back({side_of(neighbour), neighbour.link.host(), neighbour.link.peer(),
                      "has not answered for " +
                          std::to_string(kRollCallGrace / std::chrono::milliseconds(1)) + " ms",
                      neighbour.good_bye});
  }
  return silent;
}

void TcpLinks::send_failure(const collectives::FailureRecord& record) { write_last(record); }

void TcpLinks::send_good_bye() { write_last(GoodBye{}); }

// Writes to all neighbours first; then waits once for all whose sockets are full.
void TcpLinks::write_last(const LinkMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  std::vector<pollfd> full;
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.link.closed()) continue;
    neighbour.link.queue(bytes).ignore();
    const auto flushed = neighbour.link.flush();
    if (flushed.ok() && !*flushed) full.push_back({neighbour.link.fd(), POLLOUT, 0});
  }
  if (full.empty() || ::poll(full.data(), full.size(), kLastMessageMilliseconds) <= 0) return;
  for (Neighbour& neighbour : neighbours_) neighbour.link.flush().status().ignore();
}

}  // namespace ronde::runtime
