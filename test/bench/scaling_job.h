// SPDX-License-Identifier: Apache-2.0
// The control plane of a job of any size on a virtual clock: the coordinator, the relays, the
// boards and the members as they are, links in memory that take their time, and agents that do
// nothing but submit and hear. It counts what every node reads and writes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "collectives/board/board.h"
#include "runtime/links/tree.h"
#include "runtime/member/member.h"
#include "runtime/negotiate/control_node.h"
#include "test/support/memory_links.h"

namespace ronde::bench {

struct ScalingSize {
  std::int32_t ranks = 8;
  std::int32_t ranks_per_host = 8;
  std::int32_t tensors = 160;
  std::int32_t fan_in = runtime::HostTree::kFanIn;
  std::int64_t message_ns = 0;  // what a message costs its reader, and its writer
};

// What one step took. Of the inner nodes and the leaves: those with the most messages.
struct ScalingStep {
  testing::Traffic root;
  testing::Traffic inner;
  testing::Traffic leaf;
  std::int64_t latency_ns = 0;  // from the last rank's arrival to the decision at the last rank
  std::int64_t batches = 0;
};

// A rank whose batches are over as soon as they are decided. Thread safety: none.
class ScalingRank final : private runtime::Member::Owner {
 public:
  explicit ScalingRank(const runtime::RankContext& context);
  void submit(const std::string& name);
  // Reads and writes what it can; false if it had nothing to do.
  bool hear();

  std::int32_t heard = 0;  // tensors in batches of this step
  std::int64_t batches = 0;

 private:
  base::Status on_batch(std::uint64_t sequence, runtime::TensorTable::Claimed claimed) override;
  void on_failed(const runtime::LocalTensorPtr& tensor, const base::Status& why) override;
  void on_all_joined(const runtime::LocalTensorPtr&, std::int32_t) override {}
  void on_notice(const runtime::NoticeDecision&) override {}
  void on_departed() override {}

  const runtime::RankContext context_;
  runtime::TensorTable table_;
  runtime::FailurePath failure_;
  runtime::ControlStreams streams_;
  runtime::Member member_;
};

// Thread safety: none.
class ScalingJob {
 public:
  explicit ScalingJob(const ScalingSize& size);

  [[nodiscard]] std::int32_t hosts() const { return tree_.hosts(); }
  // Links between the last host, which is one of the furthest, and the root.
  [[nodiscard]] std::int32_t depth() const {
    std::int32_t depth = 0;
    for (auto host = tree_.hosts() - 1; host != runtime::HostTree::kRoot; ++depth) {
      host = tree_.parent_of(host);
    }
    return depth;
  }
  [[nodiscard]] std::int32_t root_children() const {
    return base::narrow<std::int32_t>(std::ssize(tree_.children_of(runtime::HostTree::kRoot)));
  }

  // Every rank submits every tensor, all at once: what is new goes up in full. Links take link_ns.
  ScalingStep first_step(std::int64_t link_ns);
  // Every rank submits every tensor, and the last rank of the last host a while after the others.
  ScalingStep steady_step(std::int64_t link_ns);

 private:
  struct Host {
    std::unique_ptr<runtime::ControlNode> control_node;
    std::vector<std::unique_ptr<ScalingRank>> ranks;
    std::int64_t woken_at = base::kNever.count();  // the next visit
    std::int64_t busy_until = 0;
    std::int64_t visited_messages = 0;  // before this visit
  };
  using Event = std::pair<std::int64_t, std::int32_t>;  // when, host

  static base::JobShape shape_of(const ScalingSize& size);
  void make_host(std::int32_t host);
  void begin(std::int64_t link_ns);
  ScalingStep end(std::int64_t from);
  void submit_all(ScalingRank& rank);
  void wake(std::int32_t host, std::int64_t when);
  void run();
  void visit(std::int32_t host);
  [[nodiscard]] std::int64_t messages_of(std::int32_t host);
  // What the host has done in this visit costs so much.
  [[nodiscard]] std::int64_t cost_of_visit(std::int32_t host);
  [[nodiscard]] std::string name_of(std::int32_t tensor) const;

  ScalingSize size_;
  base::JobShape shape_;
  runtime::HostTree tree_;
  base::Config config_;
  base::ManualClock clock_;
  runtime::LateRanks late_;
  base::Log log_{base::LogLevel::kOff, 0};
  std::int64_t now_ = 0;
  std::int64_t link_ns_ = 0;
  std::int64_t last_heard_ = 0;
  testing::MemoryNetwork network_;
  std::vector<Host> hosts_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace ronde::bench
