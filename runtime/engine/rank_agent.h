// SPDX-License-Identifier: Apache-2.0
// The agent of one rank: steps its parts, which are everything that an engine does between the
// calls of its user.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/status.h"
#include "runtime/drive/agent.h"
#include "runtime/engine/execution.h"
#include "runtime/engine/host_control.h"
#include "runtime/job/job.h"
#include "runtime/lines/line_waits.h"
#include "runtime/lines/quick_calls.h"
#include "runtime/links/tree.h"
#include "runtime/member/control_streams.h"
#include "runtime/member/failure_path.h"
#include "runtime/member/member.h"
#include "runtime/member/rank_context.h"
#include "runtime/member/stall_watch.h"
#include "runtime/member/stand_watch.h"
#include "runtime/member/submitters.h"
#include "runtime/messages/clock_watch.h"
#include "runtime/messages/messages.h"
#include "runtime/sets/set_agents.h"
#include "runtime/sets/set_openings.h"
#include "runtime/tensors/ended_works.h"
#include "runtime/tensors/lateness.h"
#include "runtime/tensors/tensor_table.h"
#include "runtime/timeline/timeline.h"

namespace ronde::runtime {

// Owns the parts of this rank; the job, the tensor table and what is passed by reference must
// outlive it.
//
// Thread safety: the Agent functions as agent.h says, and the parts as each of them says; the rest
// is for the thread that opens and closes the engine, while the runner does not run.
class RankAgent final : public Agent, private Member::Owner {
 public:
  struct Hooks {
    EndedWorks::Complete complete;
    ControlStreams::Notify notify;
    // Memory in this rank's arena, for good.
    std::function<base::Result<std::span<std::byte>>(base::Bytes)> allocate;
    Submitters* threads_of_job = nullptr;  // of a process set
    Timeline* timeline = nullptr;  // of a process set: the job's; otherwise the rank has its own
    // Sends an announcement of a frame (negotiate/messages.h) to the leader of this host in the
    // job.
    std::function<base::Status(std::span<const std::byte>)> send_frame;
    QuickCalls* quick = nullptr;
  };
  // set: which process set this is a rank of; nullptr: the whole job. Another agent steps that of a
  // set, which has nothing to sleep on by itself.
  RankAgent(Job& job, TensorTable& table, const base::Config& config, const base::Clock& clock,
            const base::Log& log, const SetIdentity* set, Hooks hooks);

  // ---- Agent ----
  [[nodiscard]] int do_work(SleepState& sleep) override;
  [[nodiscard]] bool busy() override {
    return execution_.busy() || messages_.busy() || sets_busy();
  }
  void want_rings(bool wanted) override;
  [[nodiscard]] bool has_descriptors() override {
    return !failure_.failed() && (control_.fd() >= 0 || execution_.fd() >= 0);
  }
  [[nodiscard]] bool needs_polling() override {
    return !failure_.failed() && execution_.needs_polling();
  }
  [[nodiscard]] bool awaits_descriptor() override {
    return !failure_.failed() && execution_.awaits_descriptor() && !sets_busy();
  }
  [[nodiscard]] base::Instant next_deadline() override;
  void on_event(int fd) override;

  // ---- parts ----
  [[nodiscard]] FailurePath& failure() { return failure_; }
  [[nodiscard]] EndedWorks& works() { return works_; }
  [[nodiscard]] LineWaits& line_waits() { return line_waits_; }
  [[nodiscard]] ControlStreams& streams() { return streams_; }
  [[nodiscard]] Member& member() { return member_; }
  [[nodiscard]] HostControl& control() { return control_; }
  [[nodiscard]] Execution& execution() { return execution_; }
  [[nodiscard]] Messages& messages() { return messages_; }
  [[nodiscard]] Timeline& timeline() { return *context_.timeline; }
  [[nodiscard]] Submitters& threads() { return threads_; }
  [[nodiscard]] const LateRanks& late() const { return late_; }
  // The agents of this rank's process sets, and the sets that are being opened.
  [[nodiscard]] SetAgents<RankAgent>& sets() { return sets_; }
  [[nodiscard]] SetOpenings& openings() { return openings_; }
  [[nodiscard]] const RankContext& context() const { return context_; }
  // Says of a process set whether its ranks have agreed that it ends after its last batch.
  [[nodiscard]] bool gives_up() const { return gives_up_.load(std::memory_order_acquire); }
  // Whether a process set is open on other ranks that talk to each other through this one.
  [[nodiscard]] bool passes_on() const { return passes_on_.load(std::memory_order_acquire); }

  // ---- of the agent of a process set ----
  [[nodiscard]] std::int32_t number() const { return context_.set->number; }
  // from: as in a Frame.
  void deliver(std::int32_t from, const std::vector<std::byte>& message);

  // Done when the coordinator has decided that this rank departed, or no longer can.
  [[nodiscard]] Completion& departed() { return departed_; }
  // What to do when this descriptor becomes readable, which the runner is to watch from then on.
  void watch(int fd, std::function<void()> on_event) {
    watched_.emplace_back(fd, std::move(on_event));
  }
  // Whether its batches pass over a transport, also on one host. Any thread.
  [[nodiscard]] bool over_transport() const { return over_transport_; }
  // The process of this rank has ended. Any thread.
  void on_end_of(std::int32_t rank);
  // Where the runner does not run yet: sends the failure of the start to the other hosts.
  void spread_failure() noexcept;
  // Releases the device, the transport and the links; the last call.
  void close();

 private:
  base::Result<int> step(SleepState& sleep, bool& left);
  int stepped(const base::Result<int>& worked);
  base::Status on_decision(const Decision& decision);
  int take_changes_of_sets();
  int step_sets(SleepState& sleep, bool& left);
  int step_executions_of_sets();
  int fail_sets();
  [[nodiscard]] bool sets_busy() const;
  void look_soon_at_lines(bool some_go_on);
  bool sets_stand(StandingAnnouncement& standing);
  [[nodiscard]] std::optional<base::Instant> oldest_beside() const;
  bool add_beside(StandingAnnouncement& standing, const std::string& where) const;
  bool on_decision_about_sets(const Decision& decision);
  void drop(const FrameDecision& frame);
  void on_departed_leader(std::int32_t rank);
  void end_message(Work& work, const base::Status& status, bool of_job);
  base::Status send_far(std::int32_t to, const Record& record, std::span<const std::byte> bytes);
  [[nodiscard]] bool passes_on(const std::vector<std::int32_t>& ranks) const;
  [[nodiscard]] base::Instant next_own_deadline() const;

  // ---- Member::Owner ----
  base::Status on_batch(std::uint64_t sequence, TensorTable::Claimed claimed) override;
  void on_failed(const LocalTensorPtr& tensor, const base::Status& why) override;
  void on_all_joined(const LocalTensorPtr& join, std::int32_t last) override;
  void on_notice(const NoticeDecision& notice) override { stalls_.on_notice(notice); }
  void on_departed() override { works_.complete_once(departed_); }

  const RankContext context_;
  Timeline timeline_;
  FailurePath failure_;
  LineWaits line_waits_;
  EndedWorks works_;
  ControlStreams streams_;
  Member member_;
  LateRanks late_;
  HostControl control_;
  Execution execution_;
  const bool over_transport_;
  StallWatch stalls_;
  Submitters threads_;
  StandWatch standing_;
  Messages messages_;
  ClockWatch clocks_;
  std::vector<std::pair<int, std::function<void()>>> watched_;
  Completion departed_;
  SetOpenings openings_;
  SetAgents<RankAgent> sets_;
  bool wants_rings_ = false;
  const HostTree tree_;
  const std::function<base::Status(std::span<const std::byte>)> send_frame_;
  QuickCalls* const quick_;
  std::map<std::int32_t, std::string> passed_on_;  // by number
  std::optional<base::Status> given_up_;           // as decided
  std::atomic<bool> gives_up_{false};              // it is
  std::atomic<bool> passes_on_{false};
  // These count the frames that carry messages, so that the deadlock watch knows of those under
  // way.
  std::atomic<std::uint64_t> frames_sent_{0};
  std::uint64_t frames_taken_ = 0;
};

}  // namespace ronde::runtime
