// SPDX-License-Identifier: Apache-2.0
// A wait, with a deadline, for what another thread or process does; and tries of what has times of
// its own.
#pragma once

#include <chrono>
#include <thread>

namespace ronde::testing {

// Returns true as soon as `condition()` does, and false after a minute, which no test should take.
template <typename Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
  const auto begin = std::chrono::steady_clock::now();
  while (!condition()) {
    const auto gone = std::chrono::steady_clock::now() - begin;
    if (gone > std::chrono::minutes(1)) return false;
    // What is not there soon may take seconds, in which other tests need the core.
    if (gone < std::chrono::milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return true;
}

// The result of a job whose steps have times, which a busy machine may miss: where it is not right,
// that of another try. What is wrong is so in each.
template <typename Job, typename IsRight>
[[nodiscard]] auto tries_of(const Job& job, const IsRight& is_right) {
  constexpr int kTries = 4;
  auto result = job();
  for (int tries = 1; tries < kTries && !is_right(result); ++tries) result = job();
  return result;
}

}  // namespace ronde::testing
