// SPDX-License-Identifier: Apache-2.0
// The meeting's loop, which steps a search for the parent and a reception of the children together.
#include "runtime/links/meeting.h"

#include <poll.h>

#include <cerrno>
#include <utility>

#include "base/numbers.h"
#include "base/process/environment.h"
#include "base/text.h"
#include "base/wire/search.h"
#include "runtime/links/child_reception.h"
#include "runtime/links/link_messages.h"

namespace ronde::runtime {

namespace {

using base::Clock;
using base::Code;
using base::Instant;
using base::Result;
using base::Status;

// How many ports are tried: one that is free on one address may be in use on another.
constexpr int kPortTries = 16;
constexpr std::size_t kMostNamed = 4;

constexpr const char* kAdvice =
    ": check the firewall between them (RONDE_PORTS), or choose the network with RONDE_INTERFACE";

// "host 2 (node7, 10.0.0.3:4711)".
std::string leader_text(std::int32_t host, const LeaderAddress& leader) {
  return "host " + std::to_string(host) + " (" + leader.host_name + ", " +
         base::joined(leader.addresses) + ")";
}

const LeaderAddress& leader_of(std::span<const LeaderAddress> leaders, std::int32_t host) {
  return leaders[base::narrow<std::size_t>(host)];
}

Result<std::vector<base::Endpoint>> endpoints_of(std::int32_t host, const LeaderAddress& leader) {
  std::vector<base::Endpoint> endpoints;
  for (const std::string& text : leader.addresses) {
    const auto endpoint = base::parse_endpoint(text);
    if (!endpoint) {
      return Status::error(Code::kInternal, "host " + std::to_string(host) + " (" +
                                                leader.host_name + ") told '" + text +
                                                "' as its address")
          .with_rank(leader.rank);
    }
    endpoints.push_back(*endpoint);
  }
  return endpoints;
}

// Both sides of a leader's meeting. They are stepped together, so a leader never waits for its
// parent before it serves its children, and no order of arrival makes hosts wait for each other.
struct Sides {
  base::Search* search;  // null: this is the root
  ChildReception* reception;

  [[nodiscard]] bool done() const {
    return (search == nullptr || search->done()) && reception->done();
  }
};

Status run(const Sides& sides, const Clock& clock, Instant deadline) {
  std::vector<pollfd> entries;
  bool begun = false;  // the first round has nothing to wait for yet
  while (!sides.done() && clock.now() < deadline) {
    entries.clear();
    if (sides.search != nullptr) sides.search->watch(entries);
    const std::size_t searched = entries.size();
    sides.reception->watch(entries);
    const int timeout = begun ? base::poll_milliseconds(clock, deadline) : 0;
    begun = true;
    if (::poll(entries.data(), entries.size(), timeout) < 0) {
      if (errno == EINTR) continue;
      return Status::system("could not wait for the leaders of the other hosts", errno);
    }
    const Instant now = clock.now();
    const std::span<const pollfd> all(entries);
    if (sides.search != nullptr) sides.search->step(all.first(searched), now);
    RONDE_RETURN_IF_ERROR(sides.reception->step(all.subspan(searched), now));
  }
  return {};
}

// What a leader says to its parent, and hears; without the addresses.
base::SearchPlan search_for(std::int32_t parent, std::int32_t host, const base::JobSecret& secret) {
  base::SearchPlan plan;
  plan.secret = secret;
  plan.hello = [host] { return encode(LeaderHello{.host = host}); };
  plan.check_answer = [parent](std::span<const std::byte> bytes) -> std::string {
    const auto hello = decode_leader_hello(bytes);
    if (!hello.ok() || hello->version != LeaderHello::kVersion) {
      return "another version of Ronde answers there";
    }
    if (hello->host == parent) return "";
    return "host " + std::to_string(hello->host) + " answers there";
  };
  return plan;
}

Status no_parent(const base::Search& search, std::int32_t host, std::int32_t parent,
                 std::span<const LeaderAddress> leaders) {
  const LeaderAddress& above = leader_of(leaders, parent);
  return Status::error(Code::kDeadline, leader_text(host, leader_of(leaders, host)) +
                                            " could not connect to host " + std::to_string(parent) +
                                            " (" + above.host_name + "; tried " + search.tried() +
                                            ")" + kAdvice)
      .with_rank(above.rank);
}

Status no_children(const ChildReception& reception, std::int32_t host,
                   std::span<const LeaderAddress> leaders) {
  const std::vector<std::int32_t> missing = reception.missing();
  std::vector<std::string> names;
  names.reserve(missing.size());
  for (const std::int32_t child : missing) {
    names.push_back(leader_text(child, leader_of(leaders, child)));
  }
  return Status::error(Code::kDeadline, base::some_of(names, kMostNamed) + " did not connect to " +
                                            leader_text(host, leader_of(leaders, host)) +
                                            " in time" + kAdvice)
      .with_rank(leader_of(leaders, missing.front()).rank);
}

}  // namespace

Result<LeaderMeeting> LeaderMeeting::listen(const std::string& wanted, const std::string& host_name,
                                            const base::PortRange& ports,
                                            const base::Keepalive& keepalive) {
  RONDE_ASSIGN_OR_RETURN(const auto all, base::list_interfaces());
  RONDE_ASSIGN_OR_RETURN(
      const auto chosen,
      base::choose_addresses(all, base::wanted_interfaces(wanted, base::process_environment()),
                             host_name));
  LeaderMeeting meeting;
  meeting.keepalive_ = keepalive;
  Status trouble;
  for (const base::IpFamily family : {base::IpFamily::kV4, base::IpFamily::kV6}) {
    const Status status = meeting.listen_on_family(chosen, family, ports);
    if (!status.ok()) trouble = status;
  }
  if (meeting.listeners_.empty()) return ports.size() > 0 ? ports.exhausted(trouble) : trouble;
  return meeting;
}

Status LeaderMeeting::listen_on_family(std::span<const base::InterfaceAddress> chosen,
                                       base::IpFamily family, const base::PortRange& ports) {
  Status trouble;
  std::vector<Listener> most;
  const bool given = ports.size() > 0;
  bool all = false;
  for (int attempt = 0; !all && attempt < (given ? ports.size() : kPortTries); ++attempt) {
    std::vector<Listener> opened;
    std::uint16_t port = given ? ports.at(attempt) : 0;
    all = true;
    for (const base::InterfaceAddress& one : chosen) {
      if (one.address.family != family) continue;
      auto socket = base::listen_on({one.address, port}, one.index);
      const auto end = socket.ok() ? base::own_end(*socket) : std::nullopt;
      if (!end) {
        // The address may have been removed, or not be usable yet.
        all = false;
        trouble = socket.status();
        continue;
      }
      port = end->port;
      opened.push_back({one, *end, std::move(*socket)});
    }
    if (all || opened.size() > most.size()) most = std::move(opened);
  }
  std::move(most.begin(), most.end(), std::back_inserter(listeners_));
  return all ? Status() : trouble;
}

std::vector<std::string> LeaderMeeting::addresses() const {
  std::vector<std::string> texts;
  texts.reserve(listeners_.size());
  for (const Listener& listener : listeners_) texts.push_back(text_of(listener.endpoint));
  return texts;
}

Result<LinkEnds> LeaderMeeting::meet(const HostTree& tree, std::int32_t host,
                                     std::span<const LeaderAddress> leaders,
                                     const base::JobSecret& secret, const Clock& clock,
                                     Instant deadline, const base::Log& log) {
  base::check(std::ssize(leaders) == tree.hosts(), "every host has a leader");
  const std::vector<Listener> listeners = std::exchange(listeners_, {});  // closed at the end
  std::vector<base::InterfaceAddress> mine;
  std::vector<const base::FileDescriptor*> sockets;
  std::uint32_t link_local_index = 0;
  for (const Listener& listener : listeners) {
    mine.push_back(listener.on);
    sockets.push_back(&listener.socket);
    if (base::is_link_local(listener.on.address)) link_local_index = listener.on.index;
  }
  std::vector<ExpectedChild> children;
  for (const std::int32_t child : tree.children_of(host)) {
    children.push_back({child, leader_of(leaders, child).host_name});
  }
  if (children.empty()) sockets.clear();
  const auto accept = [this](const base::FileDescriptor& listener) {
    return base::accept_over_tcp(listener, keepalive_);
  };
  const auto expected = std::ssize(children);
  ChildReception reception(
      {std::move(sockets), accept, secret, "the secret", "while the hosts connected", expected},
      std::move(children), host);

  std::optional<base::Search> search;
  const bool root = host == HostTree::kRoot;
  const std::int32_t parent = root ? -1 : tree.parent_of(host);
  if (!root) {
    const LeaderAddress& above = leader_of(leaders, parent);
    RONDE_ASSIGN_OR_RETURN(auto theirs, endpoints_of(parent, above));
    base::SearchPlan plan = search_for(parent, host, secret);
    for (const base::Endpoint& to : base::order_by_nearness(std::move(theirs), mine)) {
      plan.addresses.push_back(base::SearchPlan::at(to, link_local_index, keepalive_));
    }
    search.emplace(std::move(plan));
  }
  const Sides sides{search ? &*search : nullptr, &reception};
  const Status status = run(sides, clock, deadline);
  reception.report(log);
  RONDE_RETURN_IF_ERROR(status);
  if (search && !search->done()) return no_parent(*search, host, parent, leaders);
  if (!reception.done()) return no_children(reception, host, leaders);
  std::optional<base::LinkEnd> up;
  if (auto found = search ? search->take() : std::nullopt) {
    up = base::LinkEnd{parent,
                       "host " + std::to_string(parent) + " (" +
                           leader_of(leaders, parent).host_name + ", " + found->address + ")",
                       std::move(found->socket)};
  }
  return LinkEnds{std::move(up), reception.take()};
}

}  // namespace ronde::runtime
