// SPDX-License-Identifier: Apache-2.0
// Streams and events of the toy device: a thread that does what it is told, in order, later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace ronde::toy {

// Thread safety: all functions, from any thread.
class Event {
 public:
  void set() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
  }
  // Until it is over, or whoever sets `given_up` does not want it any more.
  void wait_unless(const std::atomic<bool>& given_up) {
    std::unique_lock lock(mutex_);
    while (!over_ && !given_up.load()) changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  [[nodiscard]] bool is_over() {
    const std::lock_guard lock(mutex_);
    return over_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

// Thread safety: all functions, from any thread; destroyed when nobody uses it.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void put(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  // Set when all that was put before is over.
  [[nodiscard]] std::shared_ptr<Event> record() {
    auto event = std::make_shared<Event>();
    put([event] { event->set(); });
    return event;
  }

  // Nothing is left, and nothing runs.
  [[nodiscard]] bool is_idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty() && !runs_;
  }

  void capture(bool captures) {
    const std::lock_guard lock(mutex_);
    captures_ = captures;
  }
  [[nodiscard]] bool captures() {
    const std::lock_guard lock(mutex_);
    return captures_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      runs_ = true;
      lock.unlock();
      task();
      lock.lock();
      runs_ = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool runs_ = false;
  bool ends_ = false;
  bool captures_ = false;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace ronde::toy
