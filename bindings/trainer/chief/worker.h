// SPDX-License-Identifier: Apache-2.0
// A thread for what may hang, such as a disk: whoever waits for it has a deadline, and at the end
// it is left alone if it does not come back.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace ronde::trainer {

// Does one job at a time. What jobs refer to must live as long as they do: share it with them.
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

  // Waits until nothing is being done, at most so long; whether it is so.
  bool wait(Span patience) const {
    return !done_.valid() || done_.wait_for(patience) == std::future_status::ready;
  }
  // The last one must be done. Each job has a thread of its own: throws std::system_error where
  // none can be made, and then nothing is being done.
  void start(std::function<void()> job) {
    if (thread_.joinable()) thread_.join();
    std::packaged_task<void()> task(std::move(job));
    done_ = task.get_future();
    thread_ = std::thread(std::move(task));
  }
  // Throws what the last one has thrown, which must be done.
  void rethrow() {
    if (done_.valid()) done_.get();
  }

 private:
  std::thread thread_;
  std::future<void> done_;
};

}  // namespace ronde::trainer
