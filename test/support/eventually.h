// SPDX-License-Identifier: Apache-2.0
// A wait, with a deadline, for what another thread or process does.
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

}  // namespace ronde::testing
