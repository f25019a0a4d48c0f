// SPDX-License-Identifier: Apache-2.0
// The links of one leader to its neighbours in the tree of hosts: one to its parent, but at the
// root, and one to each child. Reads and writes without blocking, and says through one descriptor
// when there is something to do.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/board.h"
#include "collectives/file_descriptor.h"
#include "runtime/host_links.h"
#include "runtime/leader_link.h"
#include "runtime/link_messages.h"

namespace ronde::runtime {

// How long a neighbour may take to answer a roll call.
inline constexpr base::Nanoseconds kRollCallGrace = std::chrono::seconds(1);

// Thread safety: belongs to the agent; fd() may be read by any thread.
class LeaderLinks {
 public:
  // Who sent something.
  enum class From : std::uint8_t { kParent, kChild };

  static base::Result<std::unique_ptr<LeaderLinks>> open(HostLinks ends);

  // Becomes readable when poll() or flush() has something to do.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  [[nodiscard]] bool has_parent() const { return has_parent_; }
  [[nodiscard]] std::int32_t children() const;

  // Reads every message that has arrived. An error of `take` ends it and is returned.
  using Take = std::function<base::Status(From, const LinkMessage&)>;
  base::Result<int> poll(const Take& take);

  base::Status send_up(const LinkMessage& message);
  base::Status send_down(const LinkMessage& message);
  // Writes what the sockets take. True: nothing is left.
  base::Result<bool> flush();

  // A neighbour whose connection has ended, once for each: nothing more comes from it.
  struct Lost {
    From who = From::kParent;
    std::int32_t host = -1;
    std::string peer;
    std::string reason;  // empty: it was closed in an orderly way
  };
  [[nodiscard]] std::optional<Lost> take_lost();

  // Asks every neighbour whether it is there, and answers such questions in poll().
  base::Status call_roll();
  // The neighbours that have not answered the last roll call.
  [[nodiscard]] std::vector<Lost> silent() const;

  // The last words: tells every neighbour, and waits shortly where a socket is full.
  void spread(const collectives::FailureRecord& record);

  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Neighbour {
    LeaderLink link;
    bool answered = true;     // the last roll call
    bool lost = false;        // reported
    bool wants_room = false;  // the epoll watches for it
  };

  LeaderLinks() = default;
  base::Status add(LinkEnd end);
  base::Result<int> read(Neighbour& neighbour, const Take& take);
  base::Status watch(Neighbour& neighbour, bool add);
  [[nodiscard]] From who(const Neighbour& neighbour) const;

  collectives::FileDescriptor epoll_;
  bool has_parent_ = false;
  std::vector<Neighbour> neighbours_;  // the parent first
};

}  // namespace ronde::runtime
