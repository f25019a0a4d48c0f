// SPDX-License-Identifier: Apache-2.0
// The lines of this rank, and its threads that sleep in a prepared operation: the agent looks for
// them, since a ring of another rank wakes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "collectives/in_host/lines.h"
#include "runtime/drive/agent.h"
#include "runtime/negotiate/deadlock_watch.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// Thread safety: every function may be called from any thread.
class LineWaits {
 public:
  // complete: finishes a completion (AgentRunner::complete).
  using Complete = std::function<void(Completion&)>;
  explicit LineWaits(Complete complete) : complete_(std::move(complete)) {}

  // What one thread sleeps for.
  class Waiter {
   public:
    // Whether it may go on, be it that nothing more will come. Reads words of the board alone.
    [[nodiscard]] virtual bool may_go_on() const = 0;
    // What it waits for, in words.
    [[nodiscard]] virtual StandingTensor standing() const = 0;
    Completion completion;

   protected:
    Waiter() = default;
    ~Waiter() = default;
  };

  // Keeps a thread in the list.
  class Sleep {
   public:
    Sleep(LineWaits& waits, Waiter& waiter) : waits_(waits), waiter_(waiter) {
      const base::MutexLock lock(waits_.mutex_);
      waits_.waiters_.push_back(&waiter_);
      waits_.any_.store(true, std::memory_order_seq_cst);
    }
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
    ~Sleep() {
      const base::MutexLock lock(waits_.mutex_);
      std::erase(waits_.waiters_, &waiter_);
      waits_.any_.store(!waits_.waiters_.empty(), std::memory_order_seq_cst);
    }

   private:
    LineWaits& waits_;
    Waiter& waiter_;
  };

  // Keeps a wait in which a thread has slept in the list of those that stand still, for the watch
  // of deadlocks.
  class Stand {
   public:
    Stand(LineWaits& waits, const Waiter& waiter, base::Instant since)
        : waits_(waits), waiter_(waiter) {
      const base::MutexLock lock(waits_.mutex_);
      waits_.standing_.emplace_back(since, &waiter_);
      waits_.any_has_stood_ = true;
      waits_.more_stand_.store(true, std::memory_order_release);
    }
    Stand(const Stand&) = delete;
    Stand& operator=(const Stand&) = delete;
    ~Stand() {
      const base::MutexLock lock(waits_.mutex_);
      std::erase_if(waits_.standing_, [&](const auto& each) { return each.second == &waiter_; });
    }

   private:
    LineWaits& waits_;
    const Waiter& waiter_;
  };

  // Keeps lines in the list of those that this rank uses.
  class Use {
   public:
    Use(LineWaits& waits, const collectives::Lines& lines) : waits_(waits), lines_(lines) {
      const base::MutexLock lock(waits_.mutex_);
      waits_.lines_.push_back(&lines_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() {
      const base::MutexLock lock(waits_.mutex_);
      std::erase(waits_.lines_, &lines_);
    }

   private:
    LineWaits& waits_;
    const collectives::Lines& lines_;
  };

  // This rank joins: whoever waits for it in one of its lines is to hear so, once it is rung.
  void join(std::int32_t rank) {
    const base::MutexLock lock(mutex_);
    for (const collectives::Lines* const lines : lines_) {
      lines->joined(rank).store(1, std::memory_order_seq_cst);
    }
  }

  // In every step of the agent: wakes those that may go on, and returns how many.
  int look() {
    if (!any_.load(std::memory_order_seq_cst)) return 0;
    const base::MutexLock lock(mutex_);
    int woken = 0;
    for (Waiter* const waiter : waiters_) {
      if (waiter->completion.done() || !waiter->may_go_on()) continue;
      complete_(waiter->completion);
      ++woken;
    }
    return woken;
  }

  // Whether more stand still than when this was asked last.
  bool take_more() {
    return more_stand_.load(std::memory_order_relaxed) && more_stand_.exchange(false);
  }
  [[nodiscard]] bool in_use() const {
    const base::MutexLock lock(mutex_);
    return !lines_.empty() || any_has_stood_;
  }
  // Since when the first of those that stand still does; kNever: none does.
  [[nodiscard]] base::Instant oldest() const {
    const base::MutexLock lock(mutex_);
    base::Instant oldest = base::kNever;
    for (const auto& [since, waiter] : standing_) oldest = std::min(oldest, since);
    return oldest;
  }
  // What the first of them waits for; empty: there is none.
  [[nodiscard]] std::string oldest_text() const {
    const base::MutexLock lock(mutex_);
    return standing_.empty() ? "" : standing_.front().second->standing().name;
  }
  // Adds what they wait for; false: one of them is about to go on.
  bool add_to(StandingAnnouncement& standing) const {
    const base::MutexLock lock(mutex_);
    for (const auto& [since, waiter] : standing_) {
      if (waiter->may_go_on()) return false;
      if (standing.tensors.size() < kMostTensorsStanding) {
        standing.tensors.push_back(waiter->standing());
      } else {
        ++standing.more;
      }
    }
    return true;
  }

 private:
  const Complete complete_;
  std::atomic<bool> any_{false};
  std::atomic<bool> more_stand_{false};
  mutable base::Mutex mutex_;
  std::vector<Waiter*> waiters_ RONDE_GUARDED_BY(mutex_);
  std::vector<std::pair<base::Instant, const Waiter*>> standing_ RONDE_GUARDED_BY(mutex_);
  bool any_has_stood_ RONDE_GUARDED_BY(mutex_) = false;
  std::vector<const collectives::Lines*> lines_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
