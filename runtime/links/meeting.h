// SPDX-License-Identifier: Apache-2.0
// How the leaders of the hosts are connected. Each listens, the start gives all leaders the
// addresses of all and what they make a secret of, and then every leader connects to its parent in
// the tree of hosts and accepts its children. Both ends prove that they know the secret.
// Connections of strangers are closed and counted, and cannot keep a leader out. After the meeting
// nothing listens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/port_range.h"
#include "base/process/file_descriptor.h"
#include "base/process/secrets.h"
#include "base/status.h"
#include "base/wire/hello.h"
#include "base/wire/interfaces.h"
#include "base/wire/tcp_socket.h"
#include "runtime/links/tcp_links.h"
#include "runtime/links/tree.h"

namespace ronde::runtime {

// How a leader is reached; in a list, item h is host h's.
struct LeaderAddress {
  std::int32_t rank = -1;  // of the leader
  std::string host_name;
  std::vector<std::string> addresses;  // "10.0.0.1:4711", "[fd00::1]:4711"
};

// Owns the listening sockets until meet() returns. meet() blocks, until its deadline at most.
//
// Thread safety: none; one thread uses it.
class LeaderMeeting {
 public:
  // Starts to listen, so that the addresses may be sent to others. One port per address family,
  // the first free one of `ports` or chosen by the kernel, and only on the addresses that
  // RONDE_INTERFACE (`wanted`) selects, as choose_addresses() does.
  static base::Result<LeaderMeeting> listen(const std::string& wanted, const std::string& host_name,
                                            const base::PortRange& ports = {},
                                            const base::Keepalive& keepalive = {});

  [[nodiscard]] std::vector<std::string> addresses() const;

  // Connects to the parent of `host` in the tree and accepts its children. `leaders`: of all hosts.
  // Stops listening before it returns, with an error too. An error (kDeadline) names both ends, and
  // the rank of the leader that was not connected.
  base::Result<LinkEnds> meet(const HostTree& tree, std::int32_t host,
                              std::span<const LeaderAddress> leaders, const base::JobSecret& secret,
                              const base::Clock& clock, base::Instant deadline,
                              const base::Log& log);

 private:
  struct Listener {
    base::InterfaceAddress on;
    base::Endpoint endpoint;
    base::FileDescriptor socket;
  };

  LeaderMeeting() = default;
  // Listens on the addresses of one family, with one port for all. An address that cannot be
  // listened on is left out; its error is returned if none is left.
  base::Status listen_on_family(std::span<const base::InterfaceAddress> chosen,
                                base::IpFamily family, const base::PortRange& ports);

  std::vector<Listener> listeners_;
  base::Keepalive keepalive_;
};

}  // namespace ronde::runtime
