// SPDX-License-Identifier: Apache-2.0
// Which engines and marks of the toy device there are.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "collectives/device/plugin.h"

namespace ronde::toy {

// What no user of the interface may do is a bug that must not go unseen. Of the process.
// Thread safety: all functions, from any thread.
class Census {
 public:
  static Census& instance() {
    static auto* const kCensus = new Census;  // outlives whatever comes late
    return *kCensus;
  }
  void open(const ronde_plugin_engine* engine) {
    locked([&] { engines_.insert(engine); });
  }
  void close(const ronde_plugin_engine* engine) {
    locked([&] { engines_.erase(engine); });
  }
  void expect_open(const ronde_plugin_engine* engine, const char* function) {
    locked([&] {
      if (engines_.contains(engine)) return;
      std::fprintf(stderr, "toy: %s of an engine that is not open\n", function);
      std::abort();
    });
  }
  void count_mark(int more) {
    locked([&] {
      marks_ += more;
      marks_made_ += more > 0 ? 1 : 0;
    });
  }
  std::int32_t marks(std::int32_t* made) {
    std::int32_t now = 0;
    locked([&] {
      now = marks_;
      *made = marks_made_;
    });
    return now;
  }

 private:
  template <class Action>
  void locked(Action action) {
    const std::lock_guard lock(mutex_);
    action();
  }

  std::mutex mutex_;
  std::set<const ronde_plugin_engine*> engines_;
  std::int32_t marks_ = 0;
  std::int32_t marks_made_ = 0;
};

// What an engine has given out, and frees with itself. Thread safety: all functions, from any
// thread.
template <class T>
class Owned {
 public:
  T* keep(std::unique_ptr<T> one) {
    T* const result = one.get();
    const std::lock_guard lock(mutex_);
    all_[result] = std::move(one);
    return result;
  }
  void free(T* one) {
    const std::lock_guard lock(mutex_);
    all_.erase(one);
  }

 private:
  std::mutex mutex_;
  std::map<T*, std::unique_ptr<T>> all_;
};

}  // namespace ronde::toy
