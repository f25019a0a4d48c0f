// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of a leader's children, and rejects everything else that connects. Only
// links/meeting.cc uses it.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/links/frame_socket.h"
#include "runtime/links/hello.h"
#include "runtime/links/interfaces.h"
#include "runtime/links/tcp_socket.h"

namespace ronde::runtime {

struct ExpectedChild {
  std::int32_t host = -1;
  std::string host_name;
};

// A reception in steps, between which the caller polls; no step blocks. A connection must send a
// correct hello within kHelloTime; any other is closed, counted and reported at the end. It owns
// the accepted sockets until take(), and touches nothing else.
//
// Thread safety: none; one thread uses it.
class ChildReception {
 public:
  // The limit of connections that have not sent a whole hello: beyond it the oldest is closed, so
  // that strangers cannot use up the descriptors. A child whose connection this closes connects
  // again.
  static constexpr std::size_t kMostStrangers = 256;
  static constexpr auto kHelloTime = std::chrono::seconds(5);

  // `listeners`: descriptors that stay the caller's. `hello`: what this leader expects of a child,
  // with its own host.
  ChildReception(std::vector<const base::FileDescriptor*> listeners,
                 std::vector<ExpectedChild> children, const LeaderHello& hello,
                 const Keepalive& keepalive);

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd>& entries);
  // `entries`: those that watch() appended, after poll().
  base::Status step(std::span<const pollfd> entries, base::Instant now);

  [[nodiscard]] bool done() const { return missing_ == 0; }
  // In the order in which they were expected.
  std::vector<LinkEnd> take();
  [[nodiscard]] std::vector<std::int32_t> missing() const;
  // Logs one line for each reason for which connections were rejected.
  void report(const base::Log& log) const;

 private:
  enum class Trouble : std::uint8_t {
    kGarbage,
    kVersion,
    kSecret,
    kNoChild,
    kTwice,
    kCut,
    kSlow,
    kCrowd,
    kLost,
  };
  static constexpr std::size_t kTroubles = 9;

  struct Stranger {
    base::FileDescriptor socket;
    HelloReader reader;
    base::Instant since{};
    std::string from;
  };
  struct Child {
    ExpectedChild expected;
    std::string from;
    base::FileDescriptor socket;  // invalid: not connected yet
  };
  struct Count {
    std::uint64_t times = 0;
    std::string last_from;
  };

  base::Status accept_some(const base::FileDescriptor& listener, base::Instant now);
  // Reads what a stranger has sent. Afterwards its socket is invalid if it was rejected, or if it
  // is a child, which then has the socket.
  void read_hello(Stranger& stranger);
  void check_hello(Stranger& stranger, const LeaderHello& hello);
  void reject(Stranger& stranger, Trouble trouble);
  void reject_oldest();
  void erase_closed();
  void drop_child(Child& child);
  static const char* reason_of(Trouble trouble);

  std::vector<const base::FileDescriptor*> listeners_;
  std::vector<Child> children_;
  std::vector<std::size_t> watched_children_;  // in the order in which watch() appended them
  LeaderHello hello_;
  Keepalive keepalive_;
  std::vector<Stranger> strangers_;  // oldest first
  std::size_t missing_;
  std::array<Count, kTroubles> counts_;
};

}  // namespace ronde::runtime
