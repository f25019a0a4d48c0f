// SPDX-License-Identifier: Apache-2.0
// Threads of the user call a plug-in while they submit, and another thread may close its engine
// meanwhile. The gate keeps the engine open while a thread is inside, and lets none in afterwards.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/process/fork_mark.h"
#include "collectives/device/plugin.h"

namespace ronde::collectives {

// Thread safety: every function may be called from any thread; open() once.
class PluginGate {
 public:
  explicit PluginGate(const ronde_plugin& table) : table_(table) {}

  void open(ronde_plugin_engine* engine) {
    const base::WriterLock lock(mutex_);
    engine_ = engine;
  }

  // Calls call(table, engine), which must not block. Returns false, without the call, if the engine
  // is closed, or belongs to the parent process: a thread that this process lacks may hold its
  // lock.
  template <class Call>
  bool enter(const Call& call) {
    if (shut_.load(std::memory_order_acquire) || !process_.is_mine()) return false;
    const base::ReaderLock lock(mutex_);
    if (engine_ == nullptr) return false;
    call(table_, engine_);
    return true;
  }

  // Closes the gate; returns when no thread is inside any more.
  void shut() {
    if (!process_.is_mine()) return;
    // Threads that enter one after another must not keep it open.
    shut_.store(true, std::memory_order_release);
    const base::WriterLock lock(mutex_);
    engine_ = nullptr;
  }

 private:
  const ronde_plugin& table_;
  const base::ForkMark process_;
  std::atomic<bool> shut_{false};
  base::SharedMutex mutex_;
  ronde_plugin_engine* engine_ RONDE_GUARDED_BY(mutex_) = nullptr;
};

// A moment in a stream of the user, as it was when the tensor was submitted (plugin.h). It may
// outlive the engine. Thread safety: immutable; any thread may release it.
class ReadyMark {
 public:
  ReadyMark(std::shared_ptr<PluginGate> gate, ronde_plugin_mark* mark)
      : gate_(std::move(gate)), mark_(mark) {}
  ReadyMark(const ReadyMark&) = delete;
  ReadyMark& operator=(const ReadyMark&) = delete;
  // Closing the engine has freed its marks.
  ~ReadyMark() {
    gate_->enter([this](const ronde_plugin& table, ronde_plugin_engine* engine) {
      table.unmark(engine, mark_);
    });
  }

  [[nodiscard]] ronde_plugin_mark* get() const { return mark_; }

 private:
  const std::shared_ptr<PluginGate> gate_;
  ronde_plugin_mark* const mark_;
};
using ReadyMarkPtr = std::shared_ptr<const ReadyMark>;

}  // namespace ronde::collectives
