// SPDX-License-Identifier: Apache-2.0
// The list lives in libronde.so and not in a plug-in: what is loaded with the program is made
// before its static objects, and so is destroyed after them.
#include "runtime/job/end_of_process.h"

#include <unistd.h>

#include <map>
#include <utility>

#include "base/mutex.h"

namespace ronde::runtime {

namespace {

using base::MutexLock;

struct LeftOpen {
  std::function<void()> close;
  pid_t owner = 0;
};

struct List {
  base::Mutex lock;
  std::map<const void*, LeftOpen> entries RONDE_GUARDED_BY(lock);
};

// Never destroyed: it is used after everything else has been.
List& list() {
  static auto* const kList = new List;
  return *kList;
}

class EndOfProcess {
 public:
  constexpr EndOfProcess() = default;
  EndOfProcess(const EndOfProcess&) = delete;
  EndOfProcess& operator=(const EndOfProcess&) = delete;
  ~EndOfProcess() {
    std::map<const void*, LeftOpen> left;
    {
      const MutexLock lock(list().lock);
      left.swap(list().entries);
    }
    for (const auto& [key, one] : left) {
      if (one.owner == ::getpid()) one.close();
    }
  }
};
const EndOfProcess kEndOfProcess;

}  // namespace

void call_at_end(const void* key, std::function<void()> close) {
  const MutexLock lock(list().lock);
  list().entries[key] = {std::move(close), ::getpid()};
}

void forget_at_end(const void* key) {
  const MutexLock lock(list().lock);
  list().entries.erase(key);
}

}  // namespace ronde::runtime
