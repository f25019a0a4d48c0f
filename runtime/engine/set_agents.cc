// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/set_agents.h"

#include <utility>

namespace ronde::runtime {

void SetAgents::note(const Change& change) {
  const base::MutexLock lock(mutex_);
  changes_.push_back(change);
  changed_.store(true, std::memory_order_release);
}

void SetAgents::add(RankAgent& set) { note({&set, nullptr}); }

void SetAgents::remove(RankAgent& set, Completion& removed) { note({&set, &removed}); }

int SetAgents::take_changes(const std::function<void(RankAgent&)>& added,
                            const std::function<void(Completion&)>& complete) {
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
    } else {
      std::erase(all_, change.set);
      complete(*change.removed);  // from now on its owner may destroy it
    }
  }
  return static_cast<int>(changes.size());
}

}  // namespace ronde::runtime
