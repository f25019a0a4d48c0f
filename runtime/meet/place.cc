// SPDX-License-Identifier: Apache-2.0
// The system calls of a meeting point: listening, accepting, connecting, and looking names up.
#include "runtime/meet/place.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "base/config.h"
#include "base/host_name.h"
#include "base/process/own_thread.h"
#include "base/wire/unix_socket.h"

namespace ronde::runtime {

using base::Clock;
using base::Code;
using base::FileDescriptor;
using base::Instant;
using base::Result;
using base::Status;

namespace {

std::string socket_name(const MeetingPoint& point) {
  if (!point.socket.empty()) return point.socket;
  return "meet-" + std::to_string(::geteuid()) + "-" + std::to_string(point.port);
}

Status cannot_listen(const MeetingPoint& point, const Status& why) {
  return Status::error(
             Code::kSystem,
             "rank 0 cannot listen at the meeting point " + text_of(point) + ": " + why.message() +
                 (why.code() == Code::kInvalidArgument
                      ? ""
                      : "; if another job or a second rank 0 is there, choose another port"))
      .with_rank(0);
}

// An address of this host with its interface; a literal meeting point must be one.
Result<base::InterfaceAddress> own_address(const base::IpAddress& address) {
  RONDE_ASSIGN_OR_RETURN(const auto all, base::list_interfaces());
  for (const base::InterfaceAddress& one : all) {
    if (one.address == address) return one;
  }
  return Status::error(Code::kInvalidArgument,
                       "this host (" + base::host_name() +
                           ") has no such address: start rank 0 on the host that has it");
}

Result<std::vector<base::InterfaceAddress>> addresses_to_listen_on(const MeetingPoint& point,
                                                                   const std::string& interfaces) {
  if (const auto literal = base::parse_address(point.host)) {
    RONDE_ASSIGN_OR_RETURN(auto own, own_address(*literal));
    return std::vector<base::InterfaceAddress>{std::move(own)};
  }
  if (!interfaces.empty()) {
    RONDE_ASSIGN_OR_RETURN(const auto all, base::list_interfaces());
    return base::choose_addresses(all, {interfaces, true}, base::host_name());
  }
  base::InterfaceAddress v6;
  v6.address.family = base::IpFamily::kV6;
  return std::vector<base::InterfaceAddress>{base::InterfaceAddress(), v6};  // any address
}

// What a thread that looks a name up shares with the one that waits for it. A lookup cannot be
// interrupted, so the thread may be left behind, and whoever is last frees this.
struct Lookup {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  int error = 0;
  std::vector<base::Endpoint> endpoints;
};

void look_up(const std::string& host, std::uint16_t port, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(error == 0 ? found : nullptr,
                                                                   ::freeaddrinfo);
  std::vector<base::Endpoint> endpoints;
  try {
    for (const addrinfo* one = owned.get(); one != nullptr; one = one->ai_next) {
      auto endpoint = base::endpoint_of(one->ai_addr);
      if (!endpoint) continue;
      endpoint->port = port;
      endpoints.push_back(*endpoint);
    }
  } catch (const std::bad_alloc&) {
    error = EAI_MEMORY;
  }
  const std::lock_guard lock(lookup.mutex);
  lookup.error = error;
  lookup.endpoints = std::move(endpoints);
  lookup.done = true;
  lookup.done_changed.notify_all();
}

// A wait reads the clock at least this often, because a test may move its clock.
constexpr auto kSlice = std::chrono::milliseconds(20);

}  // namespace

Result<MeetingListener> MeetingListener::open(const MeetingPoint& point,
                                              const std::string& interfaces,
                                              const base::Keepalive& keepalive) {
  MeetingListener listener;
  listener.keepalive_ = keepalive;
  listener.unix_ = point.on_host();
  if (point.on_host()) {
    auto socket = base::listen_abstract(socket_name(point));
    if (!socket.ok()) return cannot_listen(point, socket.status());
    listener.sockets_.push_back(std::move(*socket));
    return listener;
  }
  const auto chosen = addresses_to_listen_on(point, interfaces);
  if (!chosen.ok()) return cannot_listen(point, chosen.status());
  Status trouble;
  for (const base::InterfaceAddress& one : *chosen) {
    auto socket = base::listen_on({one.address, point.port}, one.index);
    if (socket.ok()) {
      listener.sockets_.push_back(std::move(*socket));
    } else if (trouble.ok()) {
      trouble = socket.status();
    }
  }
  // IPv4 comes first. A host may lack IPv6, but what is taken in one family is taken.
  if (listener.sockets_.empty() ||
      (!trouble.ok() && chosen->front().address.family == base::IpFamily::kV4 &&
       base::own_end(listener.sockets_.front())->address.family != base::IpFamily::kV4)) {
    return cannot_listen(point, trouble);
  }
  return listener;
}

base::Accepted MeetingListener::accept(const FileDescriptor& socket) const {
  return unix_ ? base::accept_member(socket) : base::accept_over_tcp(socket, keepalive_);
}

base::DoorPlan door_of(const MeetingListener& listener, const MeetingPoint& point,
                       const MeetingSecret& secret, std::int32_t ranks) {
  base::DoorPlan plan;
  for (const FileDescriptor& one : listener.sockets()) plan.listeners.push_back(&one);
  plan.accept = [&listener](const FileDescriptor& one) { return listener.accept(one); };
  const auto bytes = secret.bytes();
  plan.secret.assign(bytes.begin(), bytes.end());
  plan.secret_name = "the secret (RONDE_JOB_SECRET)";
  plan.during = "at the meeting point " + text_of(point);
  plan.guests = ranks;
  return plan;
}

Result<FileDescriptor> connect_on_host(const MeetingPoint& point, const Clock& clock,
                                       Instant deadline) {
  auto socket = base::connect_abstract(socket_name(point), clock, deadline);
  RONDE_RETURN_IF_ERROR(socket.status());
  if (!base::same_user(*socket)) {
    return Status::error(Code::kSystem, "a process of another user listens there");
  }
  return socket;
}

Result<std::vector<base::Endpoint>> addresses_of(const MeetingPoint& point, const Clock& clock,
                                                 Instant deadline) {
  if (const auto literal = base::parse_address(point.host)) {
    return std::vector<base::Endpoint>{{*literal, point.port}};
  }
  const auto lookup = std::make_shared<Lookup>();
  auto thread = base::start_thread(
      "a thread that looks up the name " + point.host,
      [lookup, host = point.host, port = point.port] { look_up(host, port, *lookup); });
  RONDE_RETURN_IF_ERROR(thread.status());
  thread->detach();
  std::unique_lock lock(lookup->mutex);
  while (!lookup->done && clock.now() < deadline) {
    lookup->done_changed.wait_for(lock, kSlice);
  }
  if (!lookup->done) {
    return Status::error(Code::kDeadline, "the name " + point.host + " was not found in time");
  }
  if (lookup->error != 0) {
    return Status::error(Code::kSystem, "the name " + point.host + " was not found (" +
                                            ::gai_strerror(lookup->error) + ")");
  }
  return lookup->endpoints;
}

}  // namespace ronde::runtime
