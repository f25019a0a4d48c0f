// SPDX-License-Identifier: Apache-2.0
// How a rank fails the job, and what it does when the job has failed, whoever failed it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/mutex.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/member/rank_context.h"

namespace ronde::runtime {

// The board has one record of failure for all ranks of the host, and for all their members. Owns
// what this rank has made of it.
//
// Thread safety: check() is for the agent; the rest may be called from any thread.
class FailurePath {
 public:
  // What to do once the job has failed, in this order: other hosts are notified first, because
  // giving up a device may take seconds; then the callers' memory is released, and no tensor taken
  // any more; only then are waiters notified: they may free that memory, or end the process.
  struct Steps {
    std::function<void(const collectives::FailureRecord& record)> notify;
    std::function<void(const base::Status& why)> release;
    std::function<void(const base::Status& why)> end;
  };
  FailurePath(const RankContext& context, Steps steps);

  // Fails the job on every rank, with `culprit` as the rank that caused it (-1: unknown).
  void fail(const base::Status& why, std::int32_t culprit) const;
  // Fails the process set of this rank alone, on its ranks of this host.
  void fail_alone(const base::Status& why) const;
  // The same for a lack of memory; takes none.
  void fail_for_memory() const;

  // Takes the steps, once, where the job has failed; true: it has.
  bool check();
  // Takes them for this rank of a process set that ends on all of its ranks; nothing is in
  // progress.
  void end(const base::Status& why);

  // True once the memory is released.
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The error that failed the job; ok while it has not failed.
  [[nodiscard]] base::Status why() const;

 private:
  const RankContext& context_;
  const Steps steps_;
  mutable base::Mutex mutex_;
  base::Status why_ RONDE_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

}  // namespace ronde::runtime
