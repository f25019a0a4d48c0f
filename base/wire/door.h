// SPDX-License-Identifier: Apache-2.0
// A door of a job: accepts connections, lets in those that prove that they know the secret and say
// hello, and turns everybody else away. The meeting point, the leaders of hosts
// and a board's handover have one; they say who of those that come is expected.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/hello.h"
#include "base/wire/tcp_socket.h"

namespace ronde::base {

// A connection that a listener has accepted.
struct Accepted {
  FileDescriptor socket;  // invalid, with errno set: there is none
  std::string from;       // "10.0.0.3:40112", "process 4711 of user 0"
  bool of_another_user = false;
};

// The next connection of a TCP listener.
[[nodiscard]] Accepted accept_over_tcp(const FileDescriptor& listener, const Keepalive& keepalive);

// One that knows the secret, with its hello.
struct Guest {
  FileDescriptor socket;
  std::string from;
  std::vector<std::byte> hello;
};

struct DoorPlan {
  std::vector<const FileDescriptor*> listeners;  // they stay the caller's
  std::function<Accepted(const FileDescriptor& listener)> accept;
  std::vector<std::byte> secret;
  std::string secret_name;  // "the secret (RONDE_JOB_SECRET)", for people
  std::string during;       // "while the ranks met"
  std::int64_t guests = 0;  // how many may come at once
};

// A door in steps, between which the caller polls; no step blocks. A connection that has not proved
// that it knows the secret and said hello within kTime is closed; so is one of another user, and
// one that sends anything else. All are counted, and cost one line for each reason at the end.
//
// Thread safety: none; one thread uses it.
class Door {
 public:
  static constexpr auto kTime = std::chrono::seconds(5);
  // Beyond so many connections that have not said hello the oldest is closed, so that strangers
  // cannot use up the descriptors. Who is expected and loses its connection by this comes again.
  static constexpr std::int64_t kFewestStrangers = 256;

  explicit Door(DoorPlan plan);

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd>& entries) const;
  // `entries`: those that watch() appended, after poll(). Appends those that have come.
  Status step(std::span<const pollfd> entries, Instant now, std::vector<Guest>& guests);

  // Sends a frame to those who have proved that they know the secret, and may just have said hello.
  void send_to_proven(std::span<const std::byte> frame) const;

  static constexpr const char* kOtherVersion = "another version of Ronde was at the other end";
  // Counts one that is not let in: "the host at the other end has another parent".
  void count(const std::string& reason, const std::string& from,
             LogLevel level = LogLevel::kWarning);
  // Logs one line for each reason that has grown since it was last reported, or for those that are
  // new.
  enum class Report : std::uint8_t { kAll, kNewReasons };
  void report(const Log& log, Report what = Report::kAll);
  // "; 2 connections were turned away: ... (last from 10.0.0.3:4711)", for an error about those
  // that did not come, which need not be reported then; empty if there were none.
  [[nodiscard]] std::string turned_away();

 private:
  struct Stranger {
    FileDescriptor socket;  // invalid once it was turned away or let in
    std::string from;
    Instant since{};
    HelloReader reader;
    bool proven = false;
  };
  struct Count {
    std::uint64_t times = 0;
    std::uint64_t reported = 0;  // of these
    std::string last_from;
    LogLevel level = LogLevel::kWarning;
  };

  Status accept_some(const FileDescriptor& listener, Instant now, std::vector<Guest>& guests);
  void read(Stranger& stranger, std::vector<Guest>& guests);
  void turn_away(Stranger& stranger, const std::string& reason);
  void close_oldest();
  [[nodiscard]] static std::string text_of(const std::string& reason, const Count& count);

  DoorPlan plan_;
  std::size_t most_strangers_;
  std::vector<Stranger> strangers_;      // oldest first
  std::map<std::string, Count> counts_;  // by reason
};

}  // namespace ronde::base
