// SPDX-License-Identifier: Apache-2.0
// A wait, with a deadline, for what another thread or process does.
#pragma once

#include <chrono>
#include <thread>

namespace ronde::testing {

// Returns true as soon as `condition()` does, and false after a minute, which no test should take.
template <typename Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ronde::testing
