// SPDX-License-Identifier: Apache-2.0
// What the leader of a host steps for all of its ranks: the coordinator or a relay, and the links
// to other hosts. On other ranks it is empty.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/drive/sleep_state.h"
#include "runtime/links/links.h"
#include "runtime/links/set_links.h"
#include "runtime/links/tcp_links.h"
#include "runtime/member/rank_context.h"
#include "runtime/negotiate/control_node.h"
#include "runtime/negotiate/make_control_node.h"

namespace ronde::runtime {

// Owns the links and the control node; all members of a rank share it.
//
// Thread safety: drained(), begun(), has_stepped(), may_pass_messages() and fd() from any thread;
// the rest is for the agent.
class HostControl {
 public:
  // set_links: those of a process set, which go through the leaders of the job. late: where the
  // coordinator records who is late; it must outlive this.
  HostControl(const RankContext& context, std::unique_ptr<TcpLinks> links,
              std::unique_ptr<SetLinks> set_links, LateRanks& late)
      : links_(std::move(links)),
        set_links_(std::move(set_links)),
        node_(make_control_node(context.board, context.shape, context.rank, any_links(),
                                context.config, context.clock, late)) {}

  // idle: this rank has executed every batch.
  base::Result<int> step(bool idle, SleepState& sleep);
  // held: as in ControlNode::hold_devices_back. Whether a step would publish a batch because of it.
  [[nodiscard]] bool waits_for_idle(bool held);
  [[nodiscard]] base::Instant next_deadline() const {
    return node_ ? node_->next_deadline() : base::kNever;
  }
  // The other ranks can read everything that was decided.
  [[nodiscard]] bool drained() const { return drained_.load(std::memory_order_acquire); }
  // How many steps have begun; has_stepped(begun()) is true once one has ended that began later,
  // and so has read what was announced here before.
  [[nodiscard]] std::uint64_t begun() const { return begun_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool has_stepped(std::uint64_t begun) const {
    return !node_ || ended_.load(std::memory_order_acquire) > begun;
  }
  // As in ControlNode.
  [[nodiscard]] bool may_pass_messages() const {
    return may_pass_messages_.load(std::memory_order_acquire);
  }
  // The descriptor of the links; -1 where there are none.
  [[nodiscard]] int fd() const { return links_ ? links_->fd() : -1; }
  [[nodiscard]] TcpLinks* links() const { return links_.get(); }
  // The leader of a process set over several hosts has these links; others have nullptr.
  [[nodiscard]] SetLinks* set_links() const { return set_links_.get(); }

  void notify(const collectives::FailureRecord& failure) {
    if (links_) links_->send_failure(failure);
  }
  // Says good-bye to the other hosts where the job has not failed, and releases everything.
  void close(bool failed);

 private:
  [[nodiscard]] Links* any_links() const {
    if (set_links_) return set_links_.get();
    return links_.get();
  }

  std::unique_ptr<TcpLinks> links_;      // outlives the control node
  std::unique_ptr<SetLinks> set_links_;  // likewise
  std::unique_ptr<ControlNode> node_;
  std::atomic<bool> drained_{true};
  std::atomic<bool> may_pass_messages_{false};
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> ended_{0};
};

}  // namespace ronde::runtime
