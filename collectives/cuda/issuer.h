// SPDX-License-Identifier: Apache-2.0
// The thread that starts batches, in order: NCCL may need a while, and other ranks, before a batch
// is in the stream, and the thread that drives Ronde must not wait for that. It also watches what
// is under way: errors of the communicator, deadlines, the end after a failure.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/cuda/batch_plan.h"
#include "collectives/cuda/communicator.h"
#include "collectives/cuda/core.h"
#include "collectives/cuda/pools.h"

namespace ronde::collectives::cuda {

// A batch or a copy under way. Thread safety: any thread may read `state`; the rest belongs to the
// thread that makes the task, then to the issuer, and once it is kIssued to the thread that polls;
// `done` is recorded then.
struct Task {
  enum class State { kQueued, kIssued, kOver };

  std::atomic<State> state{State::kQueued};
  std::uint64_t sequence = 0;
  BatchPlan plan;
  BlockLease buffer;
  EventLease ready;  // comes when its tensors are ready
  EventLease done;
  base::Instant deadline = base::kNever;
};

// Thread safety: all functions, from any thread.
class Issuer {
 public:
  // kSystem: there is no thread to spare. Batches need a communicator first.
  static base::Result<std::unique_ptr<Issuer>> start(std::shared_ptr<Core> core);
  void use(std::unique_ptr<Communicator> communicator);
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;
  // Closes the communicator, if it has one, when nothing is under way, and otherwise aborts it. If
  // that takes longer than a shutdown may, the thread is detached with what it uses.
  ~Issuer();

  // Queues a batch; the doorbell rings when it is in the stream, and when it is over.
  void put(std::shared_ptr<Task> task);
  // Wakes the thread after a failure.
  void wake();

 private:
  class Loop;
  Issuer(std::shared_ptr<Loop> loop, std::thread thread);

  const std::shared_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace ronde::collectives::cuda
