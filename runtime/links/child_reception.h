// SPDX-License-Identifier: Apache-2.0
// Where a leader receives its children, among whatever else connects. For links/meeting.cc alone.
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

// Steps a reception; the caller polls. A connection must say a right hello within kHelloTime;
// what does not is closed, counted and told at the end.
//
// Thread safety: used by one thread.
class ChildReception {
 public:
  // Connections that have not said hello: beyond this many the oldest is closed, so that strangers
  // cannot use up the descriptors. A child that is hit comes again.
  static constexpr std::size_t kMostStrangers = 256;
  static constexpr auto kHelloTime = std::chrono::seconds(5);

  // `listeners`: descriptors that stay the caller's. `hello`: what this leader expects of a child,
  // with its own host.
  ChildReception(std::vector<const collectives::FileDescriptor*> listeners,
                 std::vector<ExpectedChild> children, const LeaderHello& hello,
                 const Keepalive& keepalive);

  // Appends what to wait for.
  void watch(std::vector<pollfd>& entries);
  // `entries`: those that watch() appended, after poll().
  base::Status step(std::span<const pollfd> entries, base::Instant now);

  [[nodiscard]] bool done() const { return missing_ == 0; }
  // In the order in which they were expected.
  std::vector<LinkEnd> take();
  [[nodiscard]] std::vector<std::int32_t> missing() const;
  // One line for each kind of what was turned away.
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
    collectives::FileDescriptor socket;
    HelloReader reader;
    base::Instant since{};
    std::string from;
  };
  struct Child {
    ExpectedChild expected;
    std::string from;
    collectives::FileDescriptor socket;  // invalid: has not come
  };
  struct Count {
    std::uint64_t times = 0;
    std::string last_from;
  };

  base::Status accept_some(const collectives::FileDescriptor& listener, base::Instant now);
  // Reads; the socket is gone from the stranger when it is one no more.
  void hear(Stranger& stranger);
  void judge(Stranger& stranger, const LeaderHello& hello);
  void turn_away(Stranger& stranger, Trouble trouble);
  void drop_oldest();
  void forget_closed();
  void lose(Child& child);
  static const char* words_of(Trouble trouble);

  std::vector<const collectives::FileDescriptor*> listeners_;
  std::vector<Child> children_;
  std::vector<std::size_t> watched_children_;  // as watch() appended them
  LeaderHello hello_;
  Keepalive keepalive_;
  std::vector<Stranger> strangers_;  // oldest first
  std::size_t missing_;
  std::array<Count, kTroubles> counts_;
};

}  // namespace ronde::runtime
