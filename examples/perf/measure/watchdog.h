// SPDX-License-Identifier: Apache-2.0
// The deadline of a sample. Some of what is measured cannot be interrupted (a collective of MPI, a
// spinning rank), so when time is up the process prints where it was and ends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace ronde::perf {

// Thread safety: begin() and end() from one thread.
class Watchdog {
 public:
  // The watchdog calls `expired` on a thread of its own with the text of the deadline that passed;
  // it does not return.
  Watchdog(std::chrono::duration<double> patience, std::function<void(const std::string&)> expired);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  void begin(const std::string& what);
  void end();

 private:
  void watch();

  const std::chrono::steady_clock::duration patience_;
  const std::function<void(const std::string&)> expired_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool running_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point deadline_;
  std::thread thread_;  // last: everything above is there when it starts
};

}  // namespace ronde::perf
