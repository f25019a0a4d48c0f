// SPDX-License-Identifier: Apache-2.0
// Waiting in tests for what another thread or process does, but not for ever.
#pragma once

#include <chrono>
#include <thread>

namespace ronde::testing {

// True as soon as `condition()` is; false when a minute is over, which no test should take.
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
