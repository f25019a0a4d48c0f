// SPDX-License-Identifier: Apache-2.0
// The data plane of a rank: steps the executor over the batches in their order, over the transport
// and on the device, and ends their works.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "runtime/drive/sleep_state.h"
#include "runtime/execute/executor.h"
#include "runtime/job/job.h"
#include "runtime/member/rank_context.h"
#include "runtime/tensors/ended_works.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// Owns the executor, the transport and what the batches in progress need. All members of a rank
// share it: batches are executed in the order in which they come.
//
// Thread safety: counts() and last_end() from any thread; the rest is for the agent, or for the
// thread that opens and closes the engine while the runner does not run.
class Execution {
 public:
  struct Counts {
    std::uint64_t batches = 0;
    std::uint64_t tensors = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t in_place_bytes = 0;  // of these, reduced where they lay on the board
    base::Nanoseconds time{0};         // in which a batch was in progress
  };

  Execution(Job& job, const RankContext& context, EndedWorks& works);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void begin(std::uint64_t sequence, TensorTable::Claimed claimed);
  // Returns how many steps it did; an error fails the job.
  base::Result<int> step();
  // What else uses the transport: the batches of the process sets of this rank.
  struct Others {
    bool busy = false;
    std::function<int()> step;
  };
  // The transport's part in going to sleep, after step(). work: what this look has done before.
  base::Result<int> arm(int work, SleepState& sleep, const Others& others);
  // After both: whether they could have gone on, and nothing will announce it.
  [[nodiscard]] bool can_go_on() const { return can_go_on_; }
  [[nodiscard]] bool busy() const { return executor_.busy(); }
  [[nodiscard]] bool idle() const { return !executor_.busy() && !executor_.awaits_device(); }
  [[nodiscard]] bool device_full() const { return executor_.device_full(); }

  void want_rings(bool wanted) { executor_.want_rings(wanted); }
  // Another descriptor to watch, where the transport has one to sleep on; otherwise -1, also in a
  // process set, for which the job watches it.
  [[nodiscard]] int fd() const {
    return transport_ == nullptr || context_.set != nullptr ? -1 : transport_->descriptor();
  }
  // That of the process sets of this rank, too; nullptr where there is none.
  [[nodiscard]] collectives::Transport* transport() const { return transport_.get(); }
  [[nodiscard]] bool needs_polling() const;
  [[nodiscard]] bool awaits_descriptor() const;
  [[nodiscard]] base::Instant next_deadline() const;

  // Collective, once: measures how data is moved fastest on this machine.
  base::Status tune(const std::function<base::Status()>& idle) {
    return executor_.tune(context_.config, idle);
  }
  // Sets the device that executes batches of device tensors. In a process set they pass through
  // host memory, and the device is the job's.
  void use(std::shared_ptr<collectives::Device> device, bool direct);
  [[nodiscard]] bool on_devices() const { return executor_.direct(); }
  void close_device();
  // One line that names the algorithm that moves the data, and the reason for it.
  [[nodiscard]] std::string description() const { return executor_.description(); }
  [[nodiscard]] Counts counts() const;
  // When the last batch has ended here; any thread.
  [[nodiscard]] base::Instant last_end() const {
    return base::Instant(last_end_.load(std::memory_order_relaxed));
  }
  [[nodiscard]] collectives::BatchTimes* times() { return executor_.times(); }

  // After a failure: drops the batches, after which no memory of theirs is touched; gives up the
  // device, and the transport.
  void drop_batches(const std::string& why = "the job has failed");
  // That of a process set that ends, which the job's transport may still use after a failure.
  [[nodiscard]] std::unique_ptr<collectives::Workspace> release_workspace() {
    return std::move(workspace_);
  }
  void keep(std::unique_ptr<collectives::Workspace> workspace) {
    kept_.push_back(std::move(workspace));
  }
  void abandon_transport() {
    if (transport_) transport_->abandon();
  }
  // Releases the device and the batches; close_transport() is the last call.
  void close();
  void close_transport() { transport_.reset(); }

 private:
  // A batch that the executor has; its tensors keep their works until it is finished.
  struct Executing {
    std::uint64_t sequence = 0;
    std::vector<LocalTensorPtr> tensors;
    bool in_place = false;
  };
  // The loss of a connection that lost_in() holds back.
  struct HeldBack {
    base::Status why;
    base::Instant until;
  };
  struct Counters {
    std::atomic<std::uint64_t> batches{0};
    std::atomic<std::uint64_t> tensors{0};
    std::atomic<std::uint64_t> payload_bytes{0};
    std::atomic<std::uint64_t> in_place_bytes{0};
    std::atomic<std::int64_t> nanoseconds{0};
  };

  std::unique_ptr<collectives::DataPlane> make_plane(Job& job);
  std::unique_ptr<collectives::DataPlane> plane_over(const collectives::Board& board, bool probes);
  [[nodiscard]] std::deque<Executing>::iterator executing(std::uint64_t sequence);
  void describe(const Executing& batch, std::string& text) const;
  base::Result<int> lost_in(std::uint64_t sequence, const base::Status& why);
  base::Status failed_in(std::uint64_t sequence, const base::Status& why);
  void finish_works();
  void finish(const FinishedBatch& finished);
  void begin_time();
  void trace(const Executing& batch, bool ok, base::Instant began, base::Instant ended);
  void keep_what_mpi_may_write();

  const RankContext& context_;
  EndedWorks& works_;
  std::unique_ptr<collectives::Workspace> workspace_;          // outlives the transport
  std::vector<std::unique_ptr<collectives::Workspace>> kept_;  // likewise
  std::unique_ptr<collectives::Transport> transport_;
  std::shared_ptr<collectives::Device> device_;
  std::deque<Executing> executing_;  // in their order; outlive what the executor has of them
  Executor executor_;
  std::vector<FinishedBatch> finished_;
  std::string activity_;  // the text of the last batch
  std::optional<HeldBack> held_back_;
  bool can_go_on_ = false;
  std::optional<base::Instant> batch_began_;  // the batch in progress
  Counters counters_;
  std::atomic<std::int64_t> last_end_{0};
};

}  // namespace ronde::runtime
