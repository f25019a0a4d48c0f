// SPDX-License-Identifier: Apache-2.0
// The agents of the process sets of a rank, which its own agent steps.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <vector>

#include "base/mutex.h"
#include "runtime/drive/agent.h"

namespace ronde::runtime {

class RankAgent;

// Thread safety: add(), remove() and changed() from any thread; the rest is for the agent.
class SetAgents {
 public:
  // From the agent's next step on it is stepped. It must stay until it has been removed.
  void add(RankAgent& set);
  // `removed` is done when it is not stepped any more.
  void remove(RankAgent& set, Completion& removed);
  [[nodiscard]] bool changed() const { return changed_.load(std::memory_order_acquire); }

  // Takes over what has changed, and returns how many changes there were.
  int take_changes(const std::function<void(RankAgent& added)>& added,
                   const std::function<void(Completion& removed)>& complete);
  [[nodiscard]] const std::vector<RankAgent*>& all() const { return all_; }

 private:
  struct Change {
    RankAgent* set = nullptr;
    Completion* removed = nullptr;  // nullptr: it is added
  };
  void note(const Change& change);

  base::Mutex mutex_;
  std::vector<Change> changes_ RONDE_GUARDED_BY(mutex_);
  std::atomic<bool> changed_{false};
  std::vector<RankAgent*> all_;
};

}  // namespace ronde::runtime
