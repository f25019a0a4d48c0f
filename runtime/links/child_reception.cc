// SPDX-License-Identifier: Apache-2.0
// Guests of the door that are children, and children that may disconnect.
#include "runtime/links/child_reception.h"

#include <algorithm>
#include <utility>
#include "runtime/links/link_messages.h"

namespace ronde::runtime {

using base::Status;

ChildReception::ChildReception(base::DoorPlan door, std::vector<ExpectedChild> children,
                               std::int32_t host)
    : door_(std::move(door)), host_(host), missing_(children.size()) {
  for (ExpectedChild& child : children) children_.push_back({std::move(child), "", {}});
}

void ChildReception::watch(std::vector<pollfd>& entries) {
  watched_children_.clear();
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].socket.valid()) continue;
    // Only the end of the connection is awaited: a child may send frames already, which its
    // FrameSocket will read.
    entries.push_back({children_[i].socket.get(), POLLRDHUP, 0});
    watched_children_.push_back(i);
  }
  door_.watch(entries);
}

Status ChildReception::step(std::span<const pollfd> entries, base::Instant now) {
  for (std::size_t i = 0; i < watched_children_.size(); ++i) {
    if (entries[i].revents == 0) continue;
    Child& child = children_[watched_children_[i]];
    door_.count("a host disconnected before all had connected", child.from);
    child.socket.reset();
    ++missing_;
  }
  std::vector<base::Guest> guests;
  const Status stepped = door_.step(entries.subspan(watched_children_.size()), now, guests);
  for (base::Guest& guest : guests) let_in(std::move(guest));
  return stepped;
}

void ChildReception::let_in(base::Guest guest) {
  const auto hello = decode_leader_hello(guest.hello);
  if (!hello.ok() || hello->version != LeaderHello::kVersion) {
    return door_.count(base::Door::kOtherVersion, guest.from);
  }
  const auto child = std::ranges::find_if(
      children_, [&](const Child& one) { return one.expected.host == hello->host; });
  if (child == children_.end()) {
    return door_.count("the host at the other end has another parent", guest.from);
  }
  if (child->socket.valid()) {
    // A host with several routes to its parent may connect over more than one of them.
    return door_.count("the host at the other end was connected already", guest.from,
                       base::LogLevel::kDebug);
  }
  if (!base::send_hello(guest.socket, encode(LeaderHello{.host = host_}))) {
    return door_.count("the other end closed it before a whole hello", guest.from);
  }
  child->socket = std::move(guest.socket);
  child->from = std::move(guest.from);
  --missing_;
}

std::vector<base::LinkEnd> ChildReception::take() {
  std::vector<base::LinkEnd> ends;
  ends.reserve(children_.size());
  for (Child& child : children_) {
    ends.push_back({child.expected.host,
                    "host " + std::to_string(child.expected.host) + " (" +
                        child.expected.host_name + ", " + child.from + ")",
                    std::move(child.socket)});
  }
  return ends;
}

std::vector<std::int32_t> ChildReception::missing() const {
  std::vector<std::int32_t> hosts;
  for (const Child& child : children_) {
    if (!child.socket.valid()) hosts.push_back(child.expected.host);
  }
  return hosts;
}

}  // namespace ronde::runtime
