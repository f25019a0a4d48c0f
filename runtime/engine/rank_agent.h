// SPDX-License-Identifier: Apache-2.0
// The agent of one rank: everything that an engine does between the calls of its user. Reads the
// decisions of the coordinator, executes batches, finishes works, detects failures and stalls; on
// the leader of a host it steps the coordinator or the relay too.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "runtime/drive/agent.h"
#include "runtime/execute/executor.h"
#include "runtime/job/job.h"
#include "runtime/links/tcp_links.h"
#include "runtime/negotiate/control_node.h"
#include "runtime/negotiate/coordinator.h"
#include "runtime/negotiate/messages.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// What an engine has done since it was opened.
struct Statistics {
  std::uint64_t batches = 0;
  std::uint64_t tensors = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t control_bytes = 0;
  std::uint64_t full_requests = 0;
  std::uint64_t planned_requests = 0;
  std::uint64_t background_wakes = 0;
  base::Nanoseconds execution{0};  // the time in which a batch was in progress
};

// Works that ended in an error: after want_drained(), or before without a caller who asked for it.
struct FailedWorks {
  std::uint64_t while_closing = 0;
  std::uint64_t unheard = 0;
  base::Status first;  // the error of the first one; ok: there are none
};

// Touches the board, the transport, the links, the device and the tensor table of its engine, which
// must outlive it; owns the executor and the control node.
//
// Thread safety: the Agent functions as agent.h says; announce(), fail(), failed(), failure(),
// failed_works(), want_drained(), control_drained() and statistics() from any thread; the rest is
// for the thread that opens and closes the engine, while the runner does not run.
class RankAgent final : public Agent {
 public:
  struct Hooks {
    // Finishes a completion (AgentRunner::complete).
    std::function<void(Completion&)> complete;
    // Rings this rank's own doorbell from within this process (AgentRunner::notify).
    std::function<void(bool wake)> notify;
    // Asks for one more call of on_event(fd) (AgentRunner::watch).
    std::function<base::Status(int fd)> watch;
    // Takes that back (AgentRunner::unwatch).
    std::function<base::Status(int fd)> unwatch;
  };

  RankAgent(Job& job, TensorTable& table, const base::Config& config, const base::Clock& clock,
            const base::Log& log, Hooks hooks);
  ~RankAgent() override;

  // ---- Agent ----
  [[nodiscard]] int do_work() override;
  [[nodiscard]] bool runnable() override { return more_.load(std::memory_order_seq_cst); }
  [[nodiscard]] bool busy() override { return executor_.busy(); }
  void want_rings(bool wanted) override;
  [[nodiscard]] bool has_descriptors() override {
    return !failed() && (links_fd() >= 0 || transport_fd() >= 0);
  }
  [[nodiscard]] bool needs_polling() override;
  [[nodiscard]] bool awaits_descriptor() override;
  [[nodiscard]] base::Instant next_deadline() override;
  void on_event(int fd) override;

  // The descriptor that the runner must watch besides the peers' pidfds, on the leader in a job of
  // several hosts; otherwise -1.
  [[nodiscard]] int links_fd() const { return links_ == nullptr ? -1 : links_->fd(); }

  // Another one to watch, where the transport has a descriptor to sleep on; otherwise -1.
  [[nodiscard]] int transport_fd() const {
    return transport_ == nullptr ? -1 : transport_->descriptor();
  }

  // Registers which rank's process has ended when this descriptor becomes readable. Call it before
  // the runner watches the descriptor.
  void watch(int pidfd, std::int32_t rank) { watched_.emplace_back(pidfd, rank); }

  // Tells the coordinator that a tensor is ready here: by counting this rank in at its entry of the
  // plan, or by a full request. wake = false: the caller's next call is wait().
  // request: from make_request(), if the ticket has no entry.
  base::Status announce(const LocalTensor& tensor, const Ticket& ticket,
                        std::vector<std::byte> request, bool wake);
  // The bytes of a full request, and room for them in the stream to the coordinator: so that
  // announce() needs no memory: if it failed for lack of it, the others would wait for the tensor.
  [[nodiscard]] std::vector<std::byte> make_request(const LocalTensor& tensor);
  // Sends an announcement to the coordinator.
  base::Status announce(const Announcement& announcement, bool wake);
  [[nodiscard]] base::Status with_steps(const base::Status& why, const LocalTensor& tensor) const;
  // The highest number of a step that was announced here.
  [[nodiscard]] StepNumber last_step() const {
    return StepNumber::of_word(last_step_.load(std::memory_order_relaxed));
  }

  // Fails the job on every rank, with `culprit` as the rank that caused it (-1: unknown).
  void fail(const base::Status& why, std::int32_t culprit);
  // The same for a lack of memory; takes none.
  void fail_for_memory();

  // Done when the coordinator has decided that this rank departed, or no longer can.
  [[nodiscard]] Completion& departed() { return departed_; }
  // Done when nothing is in flight here; do_work() finishes it after want_drained().
  [[nodiscard]] Completion& drained() { return drained_; }
  void want_drained() { drain_wanted_.store(true, std::memory_order_release); }
  // On a leader: the other ranks can read everything that was decided.
  [[nodiscard]] bool control_drained() const {
    return control_drained_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }

  [[nodiscard]] FailedWorks failed_works() const;

  [[nodiscard]] Statistics statistics() const;

  // The error that failed the job; ok while it has not failed.
  [[nodiscard]] base::Status failure() const;

  // Collective, once, before the runner starts: measures how data is moved fastest on this machine.
  base::Status tune(const std::function<base::Status()>& idle) {
    return executor_.tune(config_, idle);
  }
  // Sets the device that executes batches of device tensors; before the runner starts.
  void use(std::shared_ptr<collectives::Device> device, bool direct) {
    device_ = device;
    executor_.use(std::move(device), direct);
  }
  // Call it when no thread drives the agent any more; the device does not ring afterwards.
  void close_device() {
    executor_.close_device();
    device_.reset();
  }
  // One line that names the algorithm that moves the data, and the reason for it.
  [[nodiscard]] std::string data_plane() const { return executor_.description(); }

  // Releases the device, the transport and the links; the last call.
  void close();

 private:
  std::unique_ptr<collectives::DataPlane> make_plane();
  std::unique_ptr<ControlNode> make_control_node();
  base::Result<int> step_control_node();
  int stepped(const base::Result<int>& worked);
  bool check_failure();
  base::Result<int> step();
  base::Result<int> read_decisions();
  base::Status on_decision(const Decision& decision);
  base::Status on_batch(const BatchDecision& decision);
  base::Result<int> execute();
  base::Result<int> arm_transport(int work);
  // A batch that the executor has; its tensors keep their works until it is finished.
  struct Executing {
    std::uint64_t sequence = 0;
    std::vector<LocalTensorPtr> tensors;
  };
  [[nodiscard]] std::deque<Executing>::iterator executing(std::uint64_t sequence);
  void drop_batches(const std::string& why = "the job has failed");
  static void describe(const Executing& batch, std::string& text);
  base::Result<int> lost_in(std::uint64_t sequence, const base::Status& why);
  base::Status failed_in(std::uint64_t sequence, const base::Status& why);
  void finish_works();
  void finish(const FinishedBatch& finished);
  void end(const LocalTensorPtr& tensor, const base::Status& status);
  void check_stalls();
  [[nodiscard]] base::Instant next_stall();
  void report_late(base::Instant now);
  [[nodiscard]] std::vector<LocalTensorPtr> late_tensors();
  void announce_late(const std::vector<LocalTensorPtr>& tensors, base::Instant now, bool failed);
  void report_expired(base::Instant now);
  void on_notice(const NoticeDecision& notice);
  void print_own_notice();
  [[nodiscard]] bool speaks_for_stopped_leader() const;
  void give_up();
  void inquire(const LocalTensorPtr& tensor);
  void end_inquiry();
  void fail_overdue(const LocalTensor& tensor);
  [[nodiscard]] std::string stall_text(const LocalTensor& tensor) const;
  [[nodiscard]] std::string text_of_host() const;
  // The first rank of this host whose process is stopped, or -1.
  [[nodiscard]] std::int32_t stopped_rank() const;
  void on_departed(const DepartedDecision& departed);
  void keep_what_mpi_may_write();
  void remember_failed(Work& work, const base::Status& status);
  void complete_once(Completion& completion);
  void ring_leader(bool wake);
  void note_step(StepNumber step);
  base::Status send(std::span<const std::byte> announcement, bool wake);
  base::Status flush_announcements();

  Job& job_;
  collectives::Board board_;
  TensorTable& table_;
  const base::Config& config_;
  const base::Clock& clock_;
  const base::Log& log_;
  Hooks hooks_;

  base::Mutex announce_mutex_;
  collectives::StreamWriter announcements_ RONDE_GUARDED_BY(announce_mutex_);
  std::atomic<bool> backlog_{false};

  collectives::StreamReader decisions_;
  std::unique_ptr<TcpLinks> links_;                    // outlives the control node
  std::unique_ptr<ControlNode> control_node_;          // on the leader of the host
  std::unique_ptr<collectives::Workspace> workspace_;  // outlives the transport
  std::unique_ptr<collectives::Transport> transport_;
  std::shared_ptr<collectives::Device> device_;
  std::deque<Executing> executing_;  // in their order; outlive what the executor has of them
  Executor executor_;
  std::vector<FinishedBatch> finished_;
  std::atomic<std::uint64_t> received_batches_{0};  // only the agent writes it
  std::string activity_;                            // the text of the last batch

  std::vector<std::pair<int, std::int32_t>> watched_;  // pidfd, rank
  Completion departed_;
  Completion drained_;
  std::atomic<bool> drain_wanted_{false};
  std::atomic<bool> control_drained_{true};
  std::atomic<bool> links_watched_{true};
  std::atomic<bool> transport_watched_{true};
  // The loss of a connection that lost_in() holds back.
  struct HeldBack {
    base::Status why;
    base::Instant until;
  };
  std::optional<HeldBack> held_back_;
  bool rings_wanted_ = false;  // only the holder of the role uses it
  std::atomic<bool> failed_{false};
  std::atomic<bool> more_{false};
  // What the last step found: more_ before it is published, and whether the executor could have
  // gone on with its batch.
  bool work_left_ = false;
  bool batch_can_go_on_ = false;
  bool transport_moves_ = false;              // the transport was not ready to sleep
  std::optional<base::Instant> batch_began_;  // the batch in progress
  // Tensors that this rank has reported as late, and when it does so again.
  std::vector<std::weak_ptr<LocalTensor>> late_;
  base::Instant next_report_ = base::kNever;
  // When this rank prints a notice of its own, because the coordinator has not sent one.
  base::Instant own_notice_at_ = base::kNever;
  // Tensors that this rank reported as stalled for good; if the coordinator has not failed the job
  // by give_up_at_, this rank does.
  std::vector<LocalTensorPtr> stalled_;
  base::Instant give_up_at_ = base::kNever;
  // Tensors whose batch does not move, and until when other hosts may report the cause.
  std::vector<LocalTensorPtr> inquiry_;
  base::Instant inquiry_ends_at_ = base::kNever;
  bool roll_called_ = false;
  base::Instant next_stall_check_{};  // nothing can be late before
  bool batch_overdue_ = false;        // stalled_.front() was in a batch at give_up_at_

  mutable base::Mutex failed_works_mutex_;
  base::Status failure_ RONDE_GUARDED_BY(failed_works_mutex_);
  base::Status first_failed_ RONDE_GUARDED_BY(failed_works_mutex_);
  std::uint64_t failed_works_ RONDE_GUARDED_BY(failed_works_mutex_) = 0;
  // Failed works of a job that lives on, until a caller asks for their results.
  struct FailedWork {
    std::shared_ptr<std::atomic<bool>> heard;
    base::Status status;
  };
  std::vector<FailedWork> reports_ RONDE_GUARDED_BY(failed_works_mutex_);

  std::atomic<std::uint64_t> batches_{0};
  std::atomic<std::uint64_t> tensors_{0};
  std::atomic<std::uint64_t> payload_bytes_{0};
  std::atomic<std::uint64_t> control_bytes_{0};
  std::atomic<std::int64_t> execution_nanoseconds_{0};
  std::atomic<std::uint64_t> last_step_{0};  // a word of StepNumber
  std::atomic<std::uint64_t> left_step_{0};  // likewise, of the first rank that has departed
  std::atomic<std::int32_t> left_rank_{-1};
  std::atomic<std::uint64_t> full_requests_{0};
  std::atomic<std::uint64_t> planned_requests_{0};
};

}  // namespace ronde::runtime
