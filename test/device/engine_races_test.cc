// SPDX-License-Identifier: Apache-2.0
// Threads that submit and wait while another one closes the engine: a plug-in that is closed is not
// called any more, and whoever comes late is told so.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/eventually.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using base::Status;
using runtime::Engine;

constexpr int kThreads = 3;
constexpr std::int64_t kRaceElements = 16;

class DeviceRaces : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceRaces() { ::setenv("RONDE_TOY", GetParam(), 1); }
  ~DeviceRaces() override { ::unsetenv("RONDE_TOY"); }
};

void expect_closed(const Status& status) {
  EXPECT_EQ(status.code(), base::Code::kClosed) << status.message();
  EXPECT_THAT(status.message(), ::testing::HasSubstr("closed"));
}

// Submits until the engine is closed, and has a stream wait for some of it.
void submit_until_closed(Engine& engine, int thread, std::atomic<int>& submitted) {
  const DeviceMemory memory(std::vector<float>(kRaceElements, 1.0F));
  const DeviceStream stream;
  const auto end = std::chrono::steady_clock::now() + kHang;
  for (int i = 0; std::chrono::steady_clock::now() < end; ++i) {
    const auto work = engine.submit(device_allreduce(
        std::to_string(thread) + "." + std::to_string(i), memory, kRaceElements, stream.get()));
    if (!work.ok()) {
      expect_closed(work.status());
      return;
    }
    submitted.fetch_add(1);
    const Status waits = engine.let_stream_wait(**work, stream.get());
    if (!waits.ok()) expect_closed(waits);
    const Status over = engine.wait(**work);
    if (!over.ok()) expect_closed(over);
  }
  ADD_FAILURE() << "the engine was not closed";
}

TEST_P(DeviceRaces, OfSubmittingAndClosing) {
  for (const int ranks : {1, 2}) {
    for (int round = 0; round < 5; ++round) {
      const auto engines = testing::open_engines(ranks, options_of_device());
      std::atomic<int> submitted{0};
      testing::on_ranks(ranks, [&](int rank) {
        Engine& engine = *engines[static_cast<std::size_t>(rank)];
        std::vector<std::thread> threads;
        for (int thread = 0; thread < kThreads; ++thread) {
          threads.emplace_back([&, thread] { submit_until_closed(engine, thread, submitted); });
        }
        EXPECT_TRUE(testing::eventually([&] { return submitted.load() >= 20; }));
        // What only one of two ranks has submitted fails.
        engine.close().ignore();
        for (std::thread& one : threads) one.join();
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Toys, DeviceRaces, ::testing::Values("", "staged", "late streams"));

}  // namespace
}  // namespace ronde::device_test
