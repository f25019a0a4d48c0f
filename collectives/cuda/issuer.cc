// SPDX-License-Identifier: Apache-2.0
// The loop of the issuing thread, and its state, which the thread may keep longer than the issuer.
#include "collectives/cuda/issuer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/process/own_thread.h"

namespace ronde::collectives::cuda {

namespace {

using base::Status;

// While something is under way this looks whether it is over, at first at once, then ever less
// often. A host function in a stream would say it, but CUDA calls those of a process one after the
// other: one of the program's that sleeps would hold up ours (seen on an H100).
constexpr std::chrono::microseconds kFirstLook{20};
constexpr std::chrono::microseconds kRarestLook{500};
// A stream takes about a thousand entries, then the next call blocks until some are over: with a
// rank that does not come this thread could not abort the communicator (10 s on an H100).
constexpr std::size_t kMostUnderWay = 32;

}  // namespace

// Shared with the thread, which may outlive the issuer.
class Issuer::Loop {
 public:
  explicit Loop(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  void use(std::unique_ptr<Communicator> communicator) {
    {
      const std::lock_guard lock(mutex_);
      communicator_ = std::move(communicator);
    }
    changed_.notify_all();
  }

  void put(std::shared_ptr<Task> task) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_all();
  }

  void wake() {
    // The lock keeps a thread that is about to sleep from missing the notification.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  // Returns false if the thread has not ended in time.
  bool stop() {
    std::unique_lock lock(mutex_);
    stops_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, core_->shutdown_timeout, [this] { return stopped_; });
  }

  void run() {
    if (await_communicator()) {
      const DeviceScope scope(*core_->cuda);
      if (!scope.status().ok()) core_->failure.give_up(scope.status().message());
      while (step()) {
      }
      finish();
    }
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  [[nodiscard]] bool gives_up() const { return core_->failure.given_up().load(); }

  // Returns false if it is time to stop.
  bool await_communicator() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stops_ || communicator_ != nullptr; });
    return communicator_ != nullptr;
  }

  // At the end of the process the driver may shut down before its users do.
  [[nodiscard]] bool driver_is_gone() const { return !DeviceScope(*core_->cuda).status().ok(); }

  // Issues one batch, or checks what is under way. Returns false when it is time to stop.
  bool step() {
    std::shared_ptr<Task> next;
    {
      std::unique_lock lock(mutex_);
      const auto due = [this] {
        return stops_ || may_issue() || (gives_up() && !core_->failure.ended());
      };
      if (under_way_.empty() || core_->failure.ended()) {
        changed_.wait(lock, due);
      } else {
        changed_.wait_for(lock, pause_, due);
      }
      if (stops_) return false;
      if (may_issue()) {
        next = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    pause_ = std::min(2 * pause_, kRarestLook);
    if (next != nullptr && !gives_up()) give_up_if(issue(next));
    look_after();
    if (gives_up()) end();
    return true;
  }

  [[nodiscard]] bool may_issue() const {
    return !queue_.empty() && under_way_.size() < kMostUnderWay;
  }

  void give_up_if(const Status& status) {
    if (!status.ok()) core_->failure.give_up(status.message());
  }

  Status issue(const std::shared_ptr<Task>& task) {
    CudaApi& cuda = *core_->cuda;
    const BatchPlan& plan = task->plan;
    under_way_.push_back(task);
    RONDE_RETURN_IF_ERROR(cuda.wait(core_->comm, task->ready.get()));
    if (!plan.pack.empty()) {
      RONDE_RETURN_IF_ERROR(cuda.pack(plan.pack, plan.pack_kind, core_->comm));
    }
    RONDE_RETURN_IF_ERROR(
        communicator_->run(plan.moves, core_->comm, {task->deadline, &core_->failure.given_up()}));
    if (!plan.unpack.empty()) {
      RONDE_RETURN_IF_ERROR(cuda.pack(plan.unpack, plan.unpack_kind, core_->comm));
    }
    RONDE_RETURN_IF_ERROR(cuda.record(task->done.get(), core_->comm));
    task->state.store(Task::State::kIssued);
    pause_ = kFirstLook;
    // A stream may wait for it from now on.
    core_->bell->ring();
    return {};
  }

  // Rings for what is over and forgets it, and checks whether the rest can still end.
  void look_after() {
    bool rings = false;
    while (!under_way_.empty() && !gives_up()) {
      const auto over = core_->cuda->is_over(under_way_.front()->done.get());
      if (!over.ok()) return give_up_if(over.status());
      if (!*over) break;
      under_way_.pop_front();
      rings = true;
      pause_ = kFirstLook;
    }
    if (rings) core_->bell->ring();
    if (under_way_.empty() || gives_up()) return;
    give_up_if(communicator_->check());
    const Task& oldest = *under_way_.front();
    if (base::SteadyClock().now() >= oldest.deadline) {
      core_->failure.give_up("batch " + std::to_string(oldest.sequence) +
                             " has not ended on the device in time");
    }
  }

  // Ends everything after a failure, so that no stream is left waiting on the device.
  void end() {
    if (core_->failure.ended()) return;
    if (driver_is_gone()) {
      communicator_->abandon();
    } else {
      communicator_->abort();
    }
    // Until then kernels and copies may write into memory of the caller.
    if (core_->drain(core_->shutdown_timeout)) {
      under_way_.clear();
    } else {
      core_->bell->log(3, "the device is still busy after its communicator was aborted");
    }
    core_->failure.end();
    core_->bell->ring();
  }

  void finish() {
    look_after();
    {
      const std::lock_guard lock(mutex_);
      if (!queue_.empty() || !under_way_.empty()) {
        core_->failure.give_up("the engine was closed");
      }
    }
    if (gives_up()) return end();
    if (driver_is_gone()) return communicator_->abandon();
    communicator_->close(
        {base::SteadyClock().after(core_->shutdown_timeout / 2), &core_->failure.given_up()});
  }

  const std::shared_ptr<Core> core_;
  std::unique_ptr<Communicator> communicator_;
  std::deque<std::shared_ptr<Task>> under_way_;  // only the thread uses these two
  std::chrono::microseconds pause_ = kFirstLook;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> queue_;
  bool stops_ = false;
  bool stopped_ = false;
};

Issuer::~Issuer() {
  if (loop_->stop()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

Issuer::Issuer(std::shared_ptr<Loop> loop, std::thread thread)
    : loop_(std::move(loop)), thread_(std::move(thread)) {}

base::Result<std::unique_ptr<Issuer>> Issuer::start(std::shared_ptr<Core> core) {
  auto loop = std::make_shared<Loop>(std::move(core));
  auto thread = base::start_thread("the thread that starts batches", [loop] { loop->run(); });
  RONDE_RETURN_IF_ERROR(thread.status());
  return std::unique_ptr<Issuer>(new Issuer(std::move(loop), std::move(*thread)));
}

void Issuer::use(std::unique_ptr<Communicator> communicator) {
  loop_->use(std::move(communicator));
}

void Issuer::put(std::shared_ptr<Task> task) { loop_->put(std::move(task)); }

void Issuer::wake() { loop_->wake(); }

}  // namespace ronde::collectives::cuda
