// SPDX-License-Identifier: Apache-2.0
// The thread that puts batches on their way, in order: NCCL may need a while, and other ranks,
// before a batch is in the stream, and whoever drives Ronde must not wait for that. It also looks
// after what is under way: errors of the communicator, deadlines, the end after a failure.
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

// A batch or a copy under way. Thread safety: `state` from any thread; the rest is of whoever makes
// it, then of the issuer, and of whoever polls once it is kIssued; `done` is recorded then.
struct Task {
  enum class State { kQueued, kIssued, kOver };

  std::atomic<State> state{State::kQueued};
  std::uint64_t sequence = 0;
  BatchPlan plan;
  BlockLease buffer;
  EventLease ready;  // when its tensors are
  EventLease done;
  base::Instant deadline = base::kNever;
};

// Thread safety: all functions, from any thread.
class Issuer {
 public:
  Issuer(std::shared_ptr<Core> core, std::unique_ptr<Communicator> communicator);
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;
  // Ends the communicator: in peace when nothing is under way. If that takes longer than the
  // shutdown may, the thread is left alone with what it uses.
  ~Issuer();

  // Rings when the batch is in the stream, and when it is over.
  void put(std::shared_ptr<Task> task);
  // Somebody has given up.
  void wake();

 private:
  class Loop;
  const std::shared_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace ronde::collectives::cuda
