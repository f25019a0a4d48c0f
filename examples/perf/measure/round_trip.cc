// SPDX-License-Identifier: Apache-2.0
// Two threads, pinned to two cores, that pass a counter back and forth.
#include "examples/perf/measure/measure.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "examples/perf/measure/start_line.h"
#include "examples/perf/measure/statistics.h"

namespace ronde::perf {

namespace {

constexpr int kTries = 15;
constexpr int kTrips = 100;

// Returns the first and the last core of this process's affinity.
std::vector<std::size_t> two_cores(const cpu_set_t& allowed) {
  std::vector<std::size_t> cores;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (cores.size() == 2) cores.pop_back();
    cores.push_back(core);
  }
  return cores;
}

bool pin_to(std::size_t core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  return pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0;
}

struct alignas(128) Ball {
  std::atomic<int> at{0};
};

void await(const Ball& ball, int value) {
  // The partner may not be running: yield the core to it now and then.
  for (int looks = 1; ball.at.load(std::memory_order_acquire) != value; ++looks) {
    if (looks % 20'000 == 0) {
      sched_yield();
    } else {
      relax();
    }
  }
}

}  // namespace

std::optional<double> core_to_core_round_trip() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return std::nullopt;
  const std::vector<std::size_t> cores = two_cores(allowed);
  if (cores.size() < 2) return std::nullopt;

  Ball ball;
  std::vector<double> times;
  bool pinned = true;
  std::thread partner([&ball, &pinned, &cores] {
    pinned = pin_to(cores[1]);
    for (int trip = 0; trip < kTries * kTrips; ++trip) {
      await(ball, 2 * trip + 1);
      ball.at.store(2 * trip + 2, std::memory_order_release);
    }
  });
  std::thread player([&ball, &times, &cores] {
    if (!pin_to(cores[0])) return;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const auto start = std::chrono::steady_clock::now();
      for (int trip = attempt * kTrips; trip < (attempt + 1) * kTrips; ++trip) {
        ball.at.store(2 * trip + 1, std::memory_order_release);
        await(ball, 2 * trip + 2);
      }
      const std::chrono::duration<double, std::nano> spent =
          std::chrono::steady_clock::now() - start;
      times.push_back(spent.count() / kTrips);
    }
  });
  player.join();
  partner.join();
  if (!pinned || times.empty()) return std::nullopt;
  return median(times);
}

}  // namespace ronde::perf
