// SPDX-License-Identifier: Apache-2.0
// The search for a door (door.h): every address of who listens there is tried in turn, again and
// again, until one answers with the proof that it knows the secret, and has taken the hello.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/hello.h"
#include "base/wire/tcp_socket.h"

namespace ronde::base {

struct SearchPlan {
  struct Address {
    std::string text;                               // "10.0.0.1:4000"
    std::function<Result<FileDescriptor>()> begin;  // begins to connect
  };
  std::vector<Address> addresses;  // nearest first
  JobSecret secret;
  std::function<std::vector<std::byte>()> hello;  // what is said to who has proved
  // Reads the hello of who listens: an empty text, or why it is somebody else. Where it is not
  // given, who listens says none.
  std::function<std::string(std::span<const std::byte>)> check_answer;

  static Address at(const Endpoint& to, std::uint32_t link_local_index, const Keepalive& keepalive);
};

// A search in steps, between which the caller polls; no step blocks. An address that accepts but
// does not answer may be another program's, or who listens may be busy: so its connection is kept,
// and the other addresses are tried beside it. Owns its sockets.
//
// Thread safety: none; one thread uses it.
class Search {
 public:
  explicit Search(SearchPlan plan);

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd>& entries);
  // `entries`: those that watch() appended, after poll().
  void step(std::span<const pollfd> entries, Instant now);
  // Does both until the search is over or the deadline has passed, for who does nothing else.
  Status run(const Clock& clock, Instant deadline);

  [[nodiscard]] bool done() const { return found_.has_value(); }
  struct Found {
    FileDescriptor socket;
    std::string address;
  };
  std::optional<Found> take() { return std::move(found_); }
  // What another attempt will hardly mend: who listens, at every address, has another secret, or is
  // of another version.
  [[nodiscard]] std::optional<HelloReader::Got> refusal() const;
  // "10.0.0.1:4000: Connection refused, 192.168.1.1:4000: timed out".
  [[nodiscard]] std::string tried() const;

 private:
  enum class State : std::uint8_t { kIdle, kConnecting, kAsked };

  struct Attempt {
    SearchPlan::Address to;
    State state = State::kIdle;
    Instant since{};  // when the state began
    FileDescriptor socket;
    std::optional<HelloReader> answer;
    std::optional<HelloReader::Got> refusal;
    bool tried = false;
    std::string outcome = "not tried";
  };

  void fail(Attempt& attempt, std::string outcome);
  void on_connected(Attempt& attempt, Instant now);
  void on_answer(Attempt& attempt);
  void begin_next(Instant now);
  void begin(Attempt& attempt, Instant now);

  SearchPlan plan_;
  std::vector<Attempt> attempts_;
  std::vector<std::size_t> watched_;  // attempts, in the order in which watch() appended them
  std::size_t next_ = 0;
  Nanoseconds pause_{};   // between two rounds over all addresses
  Instant not_before_{};  // when the next round may begin
  std::optional<Found> found_;
};

}  // namespace ronde::base
