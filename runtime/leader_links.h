// SPDX-License-Identifier: Apache-2.0
// The links of one leader over sockets: one to its parent, but at the root, and one to each child.
// Reads and writes without blocking, and says through one descriptor
// when there is something to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/board.h"
#include "collectives/file_descriptor.h"
#include "runtime/host_links.h"
#include "runtime/lead_links.h"
#include "runtime/leader_link.h"
#include "runtime/link_messages.h"

namespace ronde::runtime {

// Thread safety: belongs to the agent; fd() may be read by any thread.
class LeaderLinks final : public LeadLinks {
 public:
  static base::Result<std::unique_ptr<LeaderLinks>> open(HostLinks ends);

  // Becomes readable when poll() or flush() has something to do.
  [[nodiscard]] int fd() const { return epoll_.get(); }

  // ---- LeadLinks ----
  [[nodiscard]] std::int32_t children() const override;
  base::Result<int> poll(const Take& take) override;
  base::Status send_up(const LinkMessage& message) override;
  base::Status send_down(const LinkMessage& message) override;
  base::Result<bool> flush() override;
  [[nodiscard]] std::optional<Lost> take_lost() override;
  base::Status call_roll() override;
  [[nodiscard]] std::vector<Lost> silent() const override;

  // The last words: tells every neighbour, and waits shortly where a socket is full.
  void spread(const collectives::FailureRecord& record);

  // The last words of an engine that closes.
  void say_good_bye();

 private:
  struct Neighbour {
    LeaderLink link;
    bool answered = true;     // the last roll call
    bool good_bye = false;    // it has said so
    bool lost = false;        // reported
    bool wants_room = false;  // the epoll watches for it
  };

  LeaderLinks() = default;
  base::Status add(LinkEnd end);
  void write_last(const LinkMessage& message);
  base::Result<int> read(Neighbour& neighbour, const Take& take);
  base::Status watch(Neighbour& neighbour, bool add);
  [[nodiscard]] From who(const Neighbour& neighbour) const;

  collectives::FileDescriptor epoll_;
  bool has_parent_ = false;
  std::vector<Neighbour> neighbours_;  // the parent first
};

}  // namespace ronde::runtime
