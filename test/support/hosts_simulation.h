// SPDX-License-Identifier: Apache-2.0
// The control plane of several hosts, one action at a time: the real coordinator, relays, boards
// and members of a job, over links in memory. Only the agents that step them are modelled, and they
// move no data. The driver chooses the next action. problem() keeps the first broken promise.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "collectives/board/board.h"
#include "runtime/member/member.h"
#include "runtime/negotiate/messages.h"
#include "runtime/tensors/tensor_table.h"
#include "test/support/memory_host.h"
#include "test/support/memory_links.h"

namespace ronde::runtime {

// The submissions of the ranks. signatures[n][k][r] is what rank r submits the k-th time as tensor
// n.
struct HostsWorkload {
  base::JobShape shape = base::JobShape::one_host(1);
  std::int32_t fan_in = 1;
  std::int64_t capacity = 1;
  base::Bytes limit{1 << 20};
  std::int64_t ring_bytes = 256;  // of the boards
  std::int64_t longest_delay = 0;
  std::vector<std::vector<std::vector<Signature>>> signatures;
  std::vector<std::vector<bool>> disagree;  // [n][k]: not all ranks submit the same
  std::set<std::int32_t> may_close;         // ranks that may close before all is submitted
  bool close_together = false;              // no rank closes before all have submitted all
  double stalls = 0;                        // how often a rank reports what it waits for
  double gives_up = 0;                      // how often a rank gives up what it waits for
};

// A tensor and which time it was submitted.
using Call = std::pair<std::string, std::size_t>;

// One rank: a member, and the acts of the threads that submit and step it. Its data plane finishes
// a batch when finish() is called. Thread safety: none.
class SimulatedRank final : private Member::Owner {
 public:
  struct Answer {
    std::uint64_t batch = 0;  // 0 for an error
    base::Code code = base::Code::kOk;
    std::string text;
  };

  explicit SimulatedRank(const RankContext& context)
      : context_(context),
        table_(context.rank),
        failure_(context_, {}),
        streams_(context_, [](bool) {}),
        member_(context_, streams_, failure_, table_, *this) {}

  base::Status submit(const std::string& name, const Signature& signature);
  // The last arriver puts the entry into the queue a moment after it has counted itself in.
  void push();
  // Reads one decision; returns false if there is none.
  base::Result<bool> read();
  // Finishes the next batch.
  void finish();
  base::Status complain();
  base::Status give_up();
  base::Status start_closing();
  // Sends what a closing rank still has to send; returns true when it has left.
  base::Result<bool> go_on_closing();

  [[nodiscard]] bool pushes() const { return to_push_.has_value(); }
  [[nodiscard]] bool executes() const { return !batches_.empty(); }
  [[nodiscard]] bool closing() const { return closing_ != Closing::kNo; }
  // Tells whether a rank has left, so that this one can submit nothing any more.
  [[nodiscard]] bool shut() const { return shut_; }
  [[nodiscard]] bool left() const { return closing_ == Closing::kLeft; }
  // All is over, because some rank has given up a tensor.
  [[nodiscard]] bool ended() const { return ended_; }
  void leave();
  [[nodiscard]] bool may_submit(const std::string& name) const {
    return !closing() && !pushes() && !shut_ && !in_flight_.contains(name);
  }
  [[nodiscard]] std::size_t submitted(const std::string& name) const {
    const auto found = submitted_.find(name);
    return found == submitted_.end() ? 0 : found->second;
  }
  [[nodiscard]] const std::map<std::string, LocalTensorPtr>& in_flight() const {
    return in_flight_;
  }
  [[nodiscard]] const std::map<Call, Answer>& answers() const { return answers_; }
  [[nodiscard]] const std::vector<std::vector<Call>>& batches() const { return log_; }
  [[nodiscard]] std::uint64_t requests() const { return member_.full_requests(); }
  [[nodiscard]] std::string state() const;  // in words

 private:
  enum class Closing : std::uint8_t { kNo, kClosing, kForced, kLeft };

  base::Status check(const BatchDecision& batch) const;
  void end_all();
  void end(const LocalTensorPtr& tensor, const Answer& answer);
  // ---- Member::Owner ----
  base::Status on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) override;
  void on_failed(const LocalTensorPtr& tensor, const base::Status& why) override {
    end(tensor, {0, why.code(), why.message()});
  }
  void on_all_joined(const LocalTensorPtr&, std::int32_t) override {}
  void on_notice(const NoticeDecision&) override {}
  void on_departed() override { departed_ = true; }

  const RankContext context_;
  TensorTable table_;
  FailurePath failure_;
  ControlStreams streams_;
  Member member_;
  std::map<std::int32_t, BindDecision> plan_;  // by entry, as it was decided
  std::optional<std::int32_t> to_push_;
  std::map<std::string, LocalTensorPtr> in_flight_;
  std::map<std::string, std::size_t> submitted_;
  std::deque<std::pair<std::uint64_t, std::vector<LocalTensorPtr>>> batches_;  // not yet executed
  std::vector<std::vector<Call>> log_;                                         // of batches
  std::map<Call, Answer> answers_;
  Closing closing_ = Closing::kNo;
  bool departed_ = false;
  bool shut_ = false;
  std::optional<GivenUpDecision> given_up_;
  bool ended_ = false;
};

// Thread safety: none.
class HostsSimulation {
 public:
  using Random = std::mt19937_64;

  HostsSimulation(const HostsWorkload& workload, Random& random);

  // Does an action of a random host or rank; returns false if that one had nothing to do.
  bool act();
  // Tells whether every rank has submitted all that it has, has read the answers, and has left.
  [[nodiscard]] bool over() const;
  // Checks the promises; call this when the job is over, or when no action is possible.
  void check_end();
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::uint64_t requests() const;
  // The messages that a host has read and written on its links.
  [[nodiscard]] const testing::Traffic& traffic(std::int32_t host) {
    return network_.links(host).traffic();
  }

 private:
  struct Host {
    std::vector<collectives::Board> boards;
    std::unique_ptr<ControlNode> control_node;
    bool gone = false;
  };

  bool act_control_node(std::int32_t host);
  bool act_rank(std::int32_t rank);
  bool submit_some(std::int32_t rank);
  bool read_some(SimulatedRank& rank);
  bool close_some(std::int32_t rank);
  bool leave(std::int32_t rank);
  void check_call(const Call& call);
  bool try_to(const base::Status& status) {
    if (!status.ok()) problem(status.message());
    return true;
  }
  void problem(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }
  [[nodiscard]] std::int64_t draw(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }
  [[nodiscard]] bool chance(double probability) {
    return std::bernoulli_distribution(probability)(random_);
  }
  [[nodiscard]] bool all_submitted(std::int32_t rank) const;
  SimulatedRank& at(std::int32_t rank) { return *ranks_.at(base::narrow<std::size_t>(rank)); }

  HostsWorkload workload_;
  Random& random_;
  base::Config config_;
  base::ManualClock clock_;
  LateRanks late_;
  base::Log log_{base::LogLevel::kOff, 0};
  std::int64_t now_ = 0;
  testing::MemoryNetwork network_;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::string problem_;
};

[[nodiscard]] inline std::string tensor_name(std::size_t tensor) {
  return "t" + std::to_string(tensor);
}

}  // namespace ronde::runtime
