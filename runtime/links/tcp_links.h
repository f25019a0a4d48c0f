// SPDX-License-Identifier: Apache-2.0
// The links of one leader over sockets: one to its parent (which the root lacks) and one to each
// child. Reads and writes without blocking; one descriptor becomes readable when there is something
// to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "base/wire/frame_socket.h"
#include "collectives/board/board.h"
#include "runtime/links/link_messages.h"
#include "runtime/links/links.h"

namespace ronde::runtime {

// The connections of one leader to its neighbours in the tree of hosts, as they are handed over.
struct LinkEnds {
  std::optional<base::LinkEnd> parent;  // every host but the root has one
  std::vector<base::LinkEnd> children;  // in the order of HostTree::children_of
};

// Owns the sockets.
//
// Thread safety: only the agent uses it, but any thread may call fd().
class TcpLinks final : public Links {
 public:
  static base::Result<std::unique_ptr<TcpLinks>> open(LinkEnds ends);

  // Becomes readable when poll() or flush() has something to do.
  [[nodiscard]] int fd() const { return epoll_.get(); }

  // ---- Links ----
  [[nodiscard]] std::int32_t children() const override;
  base::Result<int> poll(const Take& take) override;
  base::Status send_up(const LinkMessage& message) override;
  base::Status send_down(const LinkMessage& message) override;
  base::Status send_towards(std::int32_t host, const LinkMessage& message) override;
  base::Result<bool> flush() override;
  [[nodiscard]] std::optional<Lost> take_lost() override;
  base::Status call_roll() override;
  [[nodiscard]] std::vector<Lost> silent() const override;

  // Sends the job's failure to every neighbour; waits up to 200 ms for sockets that are full.
  void send_failure(const collectives::FailureRecord& record);

  // Sends a GoodBye to every neighbour, in the same manner; nothing may be sent afterwards.
  void send_good_bye();

 private:
  struct Neighbour {
    base::FrameSocket link;
    bool answered = true;     // it has answered the last roll call
    bool good_bye = false;    // it has sent a GoodBye
    bool lost = false;        // take_lost() has returned it
    bool wants_room = false;  // the epoll watches for room to write
  };

  TcpLinks() = default;
  base::Status add(base::LinkEnd end);
  void write_last(const LinkMessage& message);
  base::Result<int> read(Neighbour& neighbour, const Take& take);
  base::Status watch(Neighbour& neighbour, bool add);
  [[nodiscard]] From side_of(const Neighbour& neighbour) const;

  base::FileDescriptor epoll_;
  bool has_parent_ = false;
  std::vector<Neighbour> neighbours_;  // the parent first
};

}  // namespace ronde::runtime
