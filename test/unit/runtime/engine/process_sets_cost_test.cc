// SPDX-License-Identifier: Apache-2.0
// What process sets take of the system: no descriptors, no threads, and little memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;
using testing::barrier_of;
using testing::EnginePtr;
using testing::run_job;

std::ptrdiff_t entries_of(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// The resident bytes of this process.
std::int64_t resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t pages = 0;
  file >> all >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void meet(Engine& engine, const std::string& name) {
  const auto work = engine.submit(barrier_of(name));
  ASSERT_TRUE(work.ok()) << work.status().message();
  const base::Status done = engine.wait(**work);
  ASSERT_TRUE(done.ok()) << done.message();
}

void reduce(Engine& engine, std::size_t length) {
  std::vector<float> data(length, 1.0F);
  const auto work = engine.submit(allreduce_of("x", data));
  ASSERT_TRUE(work.ok()) << work.status().message();
  ASSERT_TRUE(engine.wait(**work).ok());
  ASSERT_EQ(data.back(), static_cast<float>(engine.size()));
}

TEST(ProcessSetsCost, NoDescriptorAndNoThread) {
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 2, 2}).value();
  run_job(4, options, [](int rank, Engine& engine) {
    std::ptrdiff_t descriptors = 0;
    std::ptrdiff_t threads = 0;
    meet(engine, "all are open");
    if (rank == 0) {
      descriptors = entries_of("/proc/self/fd");
      threads = entries_of("/proc/self/task");
    }
    meet(engine, "counted");
    std::vector<EnginePtr> sets;
    for (int i = 0; i < 20; ++i) {
      sets.push_back(engine.subset({0, 1, 2, 3}, "set" + std::to_string(i)).value());
      reduce(*sets.back(), 1'000);
    }
    meet(engine, "sets are open");
    if (rank == 0) {
      EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
      EXPECT_EQ(entries_of("/proc/self/task"), threads);
    }
    meet(engine, "counted again");
  });
}

// All eight ranks are in this process, which so has the memory of all of them.
TEST(ProcessSetsCost, AHundredSetsOfEightRanksTakeFewMebibytes) {
  constexpr int kEight = 8;
  constexpr int kHundred = 100;
  run_job(kEight, [](int rank, Engine& engine) {
    std::int64_t before = 0;
    meet(engine, "all are open");
    if (rank == 0) before = resident();
    meet(engine, "measured");
    std::vector<EnginePtr> sets;
    for (int i = 0; i < kHundred; ++i) {
      auto set = engine.subset({0, 1, 2, 3, 4, 5, 6, 7}, "set" + std::to_string(i));
      ASSERT_TRUE(set.ok()) << set.status().message();
      sets.push_back(std::move(*set));
      reduce(*sets.back(), 1'024);
    }
    meet(engine, "sets are open");
    if (rank == 0) {
      const std::int64_t of_a_rank = (resident() - before) / kEight;
      std::printf("a rank has %.2f MiB more for %d sets\n",
                  static_cast<double>(of_a_rank) / (1 << 20), kHundred);
      EXPECT_LE(of_a_rank, std::int64_t{10} << 20);
    }
    meet(engine, "measured again");
  });
}

TEST(ProcessSetsCost, TheTimeToOpenOneIsPrinted) {
  run_job(2, [](int rank, Engine& engine) {
    constexpr int kTimes = 200;
    std::chrono::duration<double, std::milli> opening{};
    std::chrono::duration<double, std::milli> both{};
    for (int i = 0; i < kTimes; ++i) {
      meet(engine, "begin");
      const auto begin = std::chrono::steady_clock::now();
      const auto set = engine.subset({0, 1}, "pair" + std::to_string(i));
      opening += std::chrono::steady_clock::now() - begin;
      ASSERT_TRUE(set.ok()) << set.status().message();
      ASSERT_TRUE((*set)->close().ok());
      both += std::chrono::steady_clock::now() - begin;
    }
    if (rank == 0) {
      std::printf("opened in %.3f ms, opened and closed in %.3f ms\n", opening.count() / kTimes,
                  both.count() / kTimes);
    }
  });
}

}  // namespace
}  // namespace ronde::runtime
