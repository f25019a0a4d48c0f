// SPDX-License-Identifier: Apache-2.0
// How the leaders of the hosts come to be connected. Each listens, the bootstrap tells everybody
// all addresses and a secret of the job, and then every leader connects to its parent in the tree
// of hosts and is connected to by its children. Both ends show that they know the secret. Strangers
// and garbage are closed and counted; they keep nobody out. After the meeting nothing listens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "collectives/board/file_descriptor.h"
#include "runtime/links/frame_socket.h"
#include "runtime/links/hello.h"
#include "runtime/links/interfaces.h"
#include "runtime/links/tcp_socket.h"
#include "runtime/links/tree.h"

namespace ronde::runtime {

// Of the kernel's random numbers.
base::Result<JobSecret> make_job_secret();

// How a leader is reached. By host, in a list.
struct LeaderAddress {
  std::int32_t rank = -1;  // of the leader
  std::string host_name;
  std::vector<std::string> addresses;  // "10.0.0.1:4711", "[fd00::1]:4711"
};

// Thread safety: used by one thread.
class LeaderMeeting {
 public:
  // Listens from here on, so that the addresses may be given away. One port per address family,
  // chosen by the kernel, on the addresses alone that RONDE_INTERFACE (`wanted`) names; see
  // interfaces.h.
  static base::Result<LeaderMeeting> listen(const std::string& wanted, const std::string& host_name,
                                            const Keepalive& keepalive = {});

  [[nodiscard]] std::vector<std::string> addresses() const;

  // Connects to the parent of `host` in the tree and accepts its children. `leaders`: of all hosts.
  // Stops listening before it returns, whatever comes out. An error (kDeadline) names both ends,
  // and the rank of the leader that was not met.
  base::Result<LinkEnds> meet(const HostTree& tree, std::int32_t host,
                              std::span<const LeaderAddress> leaders, const JobSecret& secret,
                              const base::Clock& clock, base::Instant deadline,
                              const base::Log& log);

 private:
  struct Listener {
    InterfaceAddress on;
    Endpoint endpoint;
    collectives::FileDescriptor socket;
  };

  LeaderMeeting() = default;
  // On the addresses of one family, with one port for all. What cannot be listened on is left out,
  // and its error kept.
  base::Status listen_on_family(std::span<const InterfaceAddress> chosen, IpFamily family);

  std::vector<Listener> listeners_;
  Keepalive keepalive_;
};

}  // namespace ronde::runtime
