// SPDX-License-Identifier: Apache-2.0
// The agents of the process sets of a rank, which its own agent steps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "runtime/drive/agent.h"

namespace ronde::runtime {

// An agent has number(), that of its set, and deliver(from, message), for its links and messages.
//
// Thread safety: add(), remove() and changed() from any thread; the rest is for the agent.
template <typename SetAgent>
class SetAgents {
 public:
  using Message = std::pair<std::int32_t, std::vector<std::byte>>;  // from, as in a Frame

  // From the agent's next step on it is stepped. It must stay until it has been removed.
  void add(SetAgent& set) { note({&set, nullptr}); }
  // `removed` is done when it is not stepped any more.
  void remove(SetAgent& set, Completion& removed) { note({&set, &removed}); }
  [[nodiscard]] bool changed() const { return changed_.load(std::memory_order_acquire); }

  // Takes over what has changed, and returns how many changes there were.
  int take_changes(const std::function<void(SetAgent& added)>& added,
                   const std::function<void(SetAgent& removed, Completion& done)>& removed) {
    std::vector<Change> changes;
    {
      const base::MutexLock lock(mutex_);
      changes = std::exchange(changes_, {});
      changed_.store(false, std::memory_order_relaxed);
    }
    for (const Change& change : changes) {
      if (change.removed == nullptr) {
        all_.push_back(change.set);
        added(*change.set);
        deliver_early(*change.set);
      } else {
        std::erase(all_, change.set);
        removed(*change.set, *change.removed);  // from now on its owner may destroy it
      }
    }
    return static_cast<int>(changes.size());
  }
  [[nodiscard]] const std::vector<SetAgent*>& all() const { return all_; }

  // A set of that number is about to be added: its messages are kept until then.
  void expect(std::int32_t number) { early_.try_emplace(number); }
  // A message for a rank of a set here. False: the set is gone.
  bool deliver(std::int32_t number, const Message& message) {
    for (SetAgent* const set : all_) {
      if (set->number() != number) continue;
      set->deliver(message.first, message.second);
      return true;
    }
    const auto early = early_.find(number);
    if (early == early_.end()) return false;
    early->second.push_back(message);
    return true;
  }

 private:
  struct Change {
    SetAgent* set = nullptr;
    Completion* removed = nullptr;  // nullptr: it is added
  };
  void note(const Change& change) {
    const base::MutexLock lock(mutex_);
    changes_.push_back(change);
    changed_.store(true, std::memory_order_release);
  }
  void deliver_early(SetAgent& set) {
    const auto early = early_.find(set.number());
    if (early == early_.end()) return;
    for (Message& message : early->second) set.deliver(message.first, message.second);
    early_.erase(early);
  }

  base::Mutex mutex_;
  std::vector<Change> changes_ RONDE_GUARDED_BY(mutex_);
  std::atomic<bool> changed_{false};
  std::vector<SetAgent*> all_;
  std::map<std::int32_t, std::vector<Message>> early_;  // by number
};

}  // namespace ronde::runtime
