// SPDX-License-Identifier: Apache-2.0
// Gathers batches: the next ones on a thread while this one is computed, or each when it is wanted.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "bindings/trainer/data/batch.h"
#include "bindings/trainer/data/gatherer.h"

namespace ronde::trainer {

// Keeps at most `prefetch` of them ready, in memory that goes round. No wait has a deadline: each
// is for the other thread of this object, which works as long as the source does.
//
// Thread safety: belongs to one thread at a time; the source is used by the thread of this object,
// which there is where it prefetches.
class Prefetcher {
 public:
  Prefetcher(const Pipeline& pipeline, std::uint64_t epoch, std::size_t first_step);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  // Ends the thread, after the sample that it is writing.
  ~Prefetcher() = default;

  // Waits for the next batch, which stays until the next call; null at the end. Throws what
  // gathering it has thrown, now and from now on.
  const StepBatch* next();

 private:
  void gather(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);

  Gatherer gatherer_;  // the thread's, where there is one
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<StepBatch> ring_;
  std::size_t first_ = 0;     // the oldest full one
  std::size_t full_ = 0;      // how many are; with the one that is lent
  bool lent_ = false;         // the oldest is the consumer's
  bool ended_ = false;        // no more will come
  std::exception_ptr error_;  // why, if not at the end
  std::jthread thread_;       // the last member: it is joined before the others go
};

}  // namespace ronde::trainer
