// SPDX-License-Identifier: Apache-2.0
// A thread for what may hang, such as a disk: whoever waits for it has a deadline, and at the end
// it is left alone if it does not come back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace ronde::trainer {

// Does one job at a time, and `idly` each `period` in between. What jobs refer to must live as long
// as they do: share it with them.
//
// Thread safety: belongs to one thread.
class Worker {
 public:
  using Span = std::chrono::steady_clock::duration;

  explicit Worker(const std::function<void()>& idly = {}, Span period = std::chrono::hours(1))
      : shared_(std::make_shared<Shared>()),
        thread_([shared = shared_, idly, period] { run(*shared, idly, period); }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    bool left_alone = false;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->ended = true;
      left_alone = shared_->busy;
    }
    shared_->changed.notify_all();
    left_alone ? thread_.detach() : thread_.join();
  }

  // Waits until nothing is being done, at most so long; whether it is so.
  bool wait(Span patience) {
    std::unique_lock lock(shared_->mutex);
    return shared_->changed.wait_for(lock, patience, [this] { return !shared_->busy; });
  }
  // The last one must be done.
  void start(std::function<void()> job) {
    const std::lock_guard lock(shared_->mutex);
    shared_->job = std::move(job);
    shared_->busy = true;
    shared_->changed.notify_all();
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> job;
    bool busy = false;
    bool ended = false;
  };

  static void run(Shared& shared, const std::function<void()>& idly, Span period) {
    std::unique_lock lock(shared.mutex);
    while (!shared.ended || shared.busy) {
      const bool called =
          shared.changed.wait_for(lock, period, [&shared] { return shared.busy || shared.ended; });
      if (called && !shared.busy) return;
      const std::function<void()> job = called ? std::exchange(shared.job, {}) : idly;
      shared.busy = true;
      lock.unlock();
      if (job) job();
      lock.lock();
      shared.busy = static_cast<bool>(shared.job);  // one may have come beside `idly`
      shared.changed.notify_all();
    }
  }

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace ronde::trainer
