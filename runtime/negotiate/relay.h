// SPDX-License-Identifier: Apache-2.0
// The control node of every host but the first: passes announcements of the ranks of its host, and
// of the hosts below it in the tree, to its parent, and decisions from the parent to both. What a
// whole subtree has in common goes up once (link_messages.h). Touches the board of its host and the
// links; starts no thread and never blocks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/job_shape.h"
#include "collectives/board/board.h"
#include "runtime/links/links.h"
#include "runtime/negotiate/board_desk.h"
#include "runtime/negotiate/control_node.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// Which messages between ranks pass a node. Thread safety: none.
class FarMessages {
 public:
  explicit FarMessages(std::int32_t ranks) : open_(ranks) {}
  void on_frame(const Frame& frame) { passed_ = passed_ || (frame.number == 0 && frame.from >= 0); }
  void on_departed(const DepartedDecision& departed) { open_ -= departed.left ? 1 : 0; }
  // Nothing passes this node any more.
  void on_cut() { cut_ = true; }
  // Whether some rank may still send or take one that must pass here; and whether some have passed.
  [[nodiscard]] bool may_pass() const { return !cut_ && open_ > 0; }
  [[nodiscard]] bool passes() const { return passed_ && may_pass(); }

 private:
  bool passed_ = false;
  bool cut_ = false;
  std::int32_t open_;  // ranks that have not left
};

// Thread safety: none; only the agent of the host's leader uses it.
class Relay final : public ControlNode {
 public:
  // `links` must have a parent; `links`, `shape` and `clock` must outlive the relay.
  Relay(collectives::Board board, const base::JobShape& shape, std::int32_t host, Links& links,
        const base::Clock& clock);

  base::Result<int> step(bool data_plane_idle) override;
  [[nodiscard]] base::Instant next_deadline() const override { return base::kNever; }
  [[nodiscard]] bool waits_for_idle() const override { return false; }
  [[nodiscard]] bool may_pass_messages() const override { return far_.may_pass(); }
  [[nodiscard]] bool drained() const override { return desk_.drained() && links_drained_; }

 private:
  // How much of the subtree is ready for an entry: this host and each child report once a step.
  struct Ready {
    std::uint32_t generation = 0;
    std::int32_t reports = 0;
    bool here = false;  // this host has reported
    StepSpan steps{};
    ArrivalSpan arrivals{};
  };
  // The answers to a CloseDecision that have arrived, added up.
  struct Closing {
    ClosedReport report;
    std::int32_t awaited = 0;
  };

  base::Status on_message(Links::From from, const LinkMessage& message);
  base::Status pass_on(Links::From from, Frame frame);
  base::Status on_ready_here(std::int32_t entry);
  base::Status on_ready(const ReadyReport& report);
  base::Status on_closed(const ClosedReport& report);
  base::Status on_decision(const RelayedDecision& relayed);
  base::Status on_batch(const BatchDecision& batch);
  base::Status on_joined(const JoinedDecision& decision);
  // The ranks of this host that arrive at what is bound now.
  [[nodiscard]] std::uint32_t present() const { return joined_.present(shape_.ranks_of(host_)); }
  base::Status on_close(const CloseDecision& close);
  base::Status on_departed(const DepartedDecision& departed);
  base::Status on_lost(const Links::Lost& lost, bool data_plane_idle);
  [[nodiscard]] base::Status check_entry(std::int64_t entry) const;

  const base::JobShape& shape_;
  const std::int32_t host_;
  BoardDesk desk_;
  Links& links_;
  const base::Clock& clock_;
  std::vector<Ready> ready_;                 // by entry, as long as the highest that was used
  std::vector<std::uint64_t> last_batches_;  // by entry: the last batch with it
  std::map<std::int32_t, Closing> closing_;  // by entry
  Joined joined_;
  bool links_drained_ = true;
  bool somebody_left_ = false;  // a rank has left, so neighbours may close their connections
  FarMessages far_;
};

// Whether the end of a neighbour's connection is a failure. It is none once a rank has left,
// because then nothing is agreed any more and every leader closes when its own rank is done; but a
// connection that ends without a GoodBye, in the middle of a batch or while messages may go through
// it, is. in_use: that is so.
[[nodiscard]] bool is_accident(const Links::Lost& lost, bool somebody_left, bool in_use);
// The error with which a lost connection ends the job.
[[nodiscard]] base::Status lost_neighbour(const base::JobShape& shape, const Links::Lost& lost);
// The error for a neighbour that has not answered a roll call while `late` waits for it.
[[nodiscard]] base::Status silent_neighbour(const base::JobShape& shape, const Links::Lost& silent,
                                            const std::string& late);

}  // namespace ronde::runtime
