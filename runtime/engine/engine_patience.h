// SPDX-License-Identifier: Apache-2.0
// How long the calls of an engine wait for what should have come already, and who is in one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace ronde::runtime {

// Beyond the stall deadline, which ends every work, a waiter gives the verdict this long to arrive.
inline constexpr base::Nanoseconds kVerdictMargin = std::chrono::seconds(10);

// How long an engine waits for the coordinator's good-bye once nothing is in flight, and for its
// own agent to end the works of a job that has failed.
inline constexpr base::Nanoseconds kFarewell = std::chrono::seconds(5);

// A thread that close() lets go first.
class Inside {
 public:
  explicit Inside(std::atomic<std::int32_t>& threads) : threads_(threads) {
    threads_.fetch_add(1, std::memory_order_acq_rel);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { threads_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  std::atomic<std::int32_t>& threads_;
};

}  // namespace ronde::runtime
