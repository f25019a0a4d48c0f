// SPDX-License-Identifier: Apache-2.0
// Rank 0's door: accepts connections at the meeting point, lets in those that prove that they know
// the secret, and turns everybody else away. Only meet/server.cc uses it, and tests.
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/links/frame_socket.h"
#include "runtime/meet/handshake.h"
#include "runtime/meet/messages.h"
#include "runtime/meet/place.h"

namespace ronde::runtime {

// A rank that has come.
struct Arrival {
  MeetingHello hello;
  FrameSocket socket;
};

// A reception in steps, between which the caller polls; no step blocks. A connection that has not
// proved that it knows the secret and said hello within kTime is closed; so is one of another user,
// and one that sends anything else. All are counted, and cost one line for each reason at the end.
//
// Thread safety: none; one thread uses it.
class Reception {
 public:
  static constexpr auto kTime = std::chrono::seconds(5);

  // `ranks`: how many may come at once.
  Reception(MeetingListener listener, MeetingSecret secret, std::int32_t ranks);

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd>& entries);
  // `entries`: those that watch() appended, after poll(). Appends the ranks that have come.
  base::Status step(std::span<const pollfd> entries, base::Instant now,
                    std::vector<Arrival>& arrivals);

  // Logs one line for each reason for which connections were turned away.
  void report(const base::Log& log) const;
  // "; 2 connections were turned away: ... (last from 10.0.0.3:4711)", for an error about ranks
  // that did not come; empty if there were none.
  [[nodiscard]] std::string turned_away() const;

 private:
  enum class Trouble : std::uint8_t { kUser, kGarbage, kSecret, kVersion, kCut, kSlow, kCrowd };
  static constexpr std::size_t kTroubles = 7;
  // Beyond so many connections that have not said hello the oldest is closed, so that strangers
  // cannot use up the descriptors. A rank whose connection this closes connects again.
  static constexpr std::size_t kFewestStrangers = 256;

  struct Stranger {
    base::FileDescriptor socket;  // invalid once it was turned away or let in
    std::string from;
    base::Instant since{};
    Handshake handshake;
    std::array<std::byte, kOpeningBytes> bytes{};  // of the message that is arriving
    std::size_t size = 0;
    std::optional<FrameSocket> frames;  // has the socket once the handshake is over

    [[nodiscard]] int fd() const { return frames ? frames->fd() : socket.get(); }
    [[nodiscard]] bool gone() const { return !socket.valid() && !frames; }
  };
  struct Count {
    std::uint64_t times = 0;
    std::string last_from;
  };

  base::Status accept_some(const base::FileDescriptor& listener, base::Instant now,
                           std::vector<Arrival>& arrivals);
  void read(Stranger& stranger, std::vector<Arrival>& arrivals);
  // Whether the handshake is over.
  bool read_handshake(Stranger& stranger);
  void read_hello(Stranger& stranger, std::vector<Arrival>& arrivals);
  void turn_away(Stranger& stranger, Trouble trouble);
  static const char* reason_of(Trouble trouble);
  [[nodiscard]] static std::string text_of(Trouble trouble, const Count& count);

  MeetingListener listener_;
  MeetingSecret secret_;
  std::size_t most_strangers_;
  std::vector<Stranger> strangers_;  // oldest first
  std::array<Count, kTroubles> counts_;
};

}  // namespace ronde::runtime
