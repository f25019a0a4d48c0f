// SPDX-License-Identifier: Apache-2.0
// A job whose ranks are threads, each with an engine of the plug-in under test.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "test/device/device.h"

namespace ronde::device_test {

// Thread safety: run() by one thread.
class DeviceJob {
 public:
  explicit DeviceJob(std::int32_t size) : size_(size), meet_(size) {}

  // Opens with the others.
  DeviceRank rank(std::int32_t rank) {
    return {rank, size_,
            [this](std::int32_t of, const void* mine, std::size_t bytes, void* all) {
              allgather(of, mine, bytes, all);
              return true;
            },
            [](const std::string& what) { ADD_FAILURE() << what; }};
  }
  // Every rank, open, in a thread of its own.
  void run(const std::function<void(DeviceRank&)>& work) {
    std::vector<std::thread> threads;
    for (std::int32_t number = 0; number < size_; ++number) {
      threads.emplace_back([this, number, &work] {
        DeviceRank one = rank(number);
        work(one);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void meet() { meet_.arrive_and_wait(); }

 private:
  void allgather(std::int32_t rank, const void* mine, std::size_t bytes, void* all) {
    if (rank == 0) gathered_.resize(bytes * static_cast<std::size_t>(size_));
    meet();
    std::memcpy(gathered_.data() + static_cast<std::size_t>(rank) * bytes, mine, bytes);
    meet();
    std::memcpy(all, gathered_.data(), gathered_.size());
    meet();
  }

  const std::int32_t size_;
  std::barrier<> meet_;
  std::vector<char> gathered_;
};

}  // namespace ronde::device_test
