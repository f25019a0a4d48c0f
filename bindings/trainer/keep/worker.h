// SPDX-License-Identifier: Apache-2.0
// A thread for calls that may hang, such as those to a disk: waits for it have a timeout, and in
// the end it is detached if it does not return.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace ronde::trainer {

// Runs one job at a time. Jobs may outlive this object: they must share ownership of what they use.
//
// Thread safety: belongs to one thread.
class Worker {
 public:
  using Span = std::chrono::steady_clock::duration;

  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    if (thread_.joinable()) wait({}) ? thread_.join() : thread_.detach();
  }

  // Waits until no job runs, at most so long; returns whether none does.
  bool wait(Span patience) const {
    return !done_.valid() || done_.wait_for(patience) == std::future_status::ready;
  }
  // The previous job must have ended. Each job has a thread of its own: throws std::system_error,
  // and runs nothing, where none can be made.
  void start(std::function<void()> job) {
    if (thread_.joinable()) thread_.join();
    std::packaged_task<void()> task(std::move(job));
    done_ = task.get_future();
    thread_ = std::thread(std::move(task));
  }
  // Rethrows the exception of the last job, which must have ended.
  void rethrow() {
    if (done_.valid()) done_.get();
  }

 private:
  std::thread thread_;
  std::future<void> done_;
};

}  // namespace ronde::trainer
