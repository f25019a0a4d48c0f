// SPDX-License-Identifier: Apache-2.0
// Connects a leader to its parent by trying every address of it in turn, until one answers. Only
// links/meeting.cc uses it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/wire/frame_socket.h"
#include "base/wire/hello.h"
#include "base/wire/interfaces.h"
#include "base/wire/tcp_socket.h"

namespace ronde::runtime {

// Where to search, and how the parent knows this leader.
struct SearchPlan {
  std::int32_t parent = -1;
  std::string parent_name;                // the parent's host name
  std::vector<base::Endpoint> addresses;  // nearest first
  std::int32_t host = -1;                 // of this leader
  base::JobSecret secret;
  std::uint32_t link_local_index = 0;  // the interface through which link-local addresses are tried
  base::Keepalive keepalive;
};

// A search in steps, between which the caller polls; no step blocks. An address that accepts but
// does not answer may be another program's, or the parent may not be in meet() yet: so its
// connection is kept, and the other addresses are tried beside it. Owns its sockets.
//
// Thread safety: none; one thread uses it.
class ParentSearch {
 public:
  explicit ParentSearch(SearchPlan plan);

  // Appends the descriptors to poll.
  void watch(std::vector<pollfd>& entries);
  // `entries`: those that watch() appended, after poll().
  void step(std::span<const pollfd> entries, base::Instant now);

  [[nodiscard]] bool done() const { return link_.has_value(); }
  std::optional<base::LinkEnd> take() { return std::move(link_); }
  // "10.0.0.1:4000: Connection refused, 192.168.1.1:4000: timed out".
  [[nodiscard]] std::string tried() const;

 private:
  enum class State : std::uint8_t { kIdle, kConnecting, kAsked };

  struct Attempt {
    base::Endpoint to;
    State state = State::kIdle;
    base::Instant since{};  // when the state began
    base::FileDescriptor socket;
    std::optional<base::HelloReader> answer;
    bool tried = false;
    std::string outcome = "not tried";
  };

  void fail(Attempt& attempt, std::string outcome);
  void on_connected(Attempt& attempt, base::Instant now);
  void on_answer(Attempt& attempt);
  void on_hello(Attempt& attempt, std::span<const std::byte> hello);
  void begin_next(base::Instant now);
  void begin(Attempt& attempt, base::Instant now);

  SearchPlan plan_;
  std::vector<Attempt> attempts_;
  std::vector<std::size_t> watched_;  // attempts, in the order in which watch() appended them
  std::size_t next_ = 0;
  base::Instant not_before_{};  // when the next round may begin
  std::optional<base::LinkEnd> link_;
};

}  // namespace ronde::runtime
