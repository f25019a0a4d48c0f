// SPDX-License-Identifier: Apache-2.0
// What the fakes share with whoever steers them: numbers by name, and a trace.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ronde::fake {

// Thread safety: all functions, from any thread.
class State {
 public:
  static State& instance() {
    static auto* const kState = new State;  // outlives whatever ends at exit
    return *kState;
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    for (auto& [name, value] : numbers_) {
      if (!is_alive(name)) value = 0;
    }
    numbers_["steps"] = 2;
    trace_.clear();
  }
  void set(const std::string& name, std::int32_t value) {
    const std::lock_guard lock(mutex_);
    numbers_[name] = value;
  }
  std::int32_t add(const std::string& name, std::int32_t value) {
    const std::lock_guard lock(mutex_);
    return numbers_[name] += value;
  }
  [[nodiscard]] std::int32_t get(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return numbers_[name];
  }
  // What nobody frees when a driver is gone is no leak.
  void keep(const void* made) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(made);
  }
  void note(const std::string& line) {
    const std::lock_guard lock(mutex_);
    trace_ += line + "\n";
  }
  [[nodiscard]] std::string trace() {
    const std::lock_guard lock(mutex_);
    return trace_;
  }

 private:
  State() { numbers_["steps"] = 2; }

  // How many of something there are.
  static bool is_alive(const std::string& name) {
    for (const char* const one : {"streams", "events", "blocks", "host_blocks", "results"}) {
      if (name == one) return true;
    }
    return false;
  }

  std::mutex mutex_;
  std::map<std::string, std::int32_t> numbers_;
  std::string trace_;
  std::vector<const void*> kept_;
};

}  // namespace ronde::fake
