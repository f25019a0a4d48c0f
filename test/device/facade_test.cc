// SPDX-License-Identifier: Apache-2.0
// Tensors of a device through libronde.so: the C ABI and the facade over it.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/device/device_job.h"

namespace ronde::device_test {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kElements = 100;

class Facade : public ::testing::Test {
 protected:
  Facade() { ::setenv("RONDE_PLUGIN_PATH", std::getenv("RONDE_DEVICE_PLUGIN"), 1); }
  ~Facade() override { ::unsetenv("RONDE_PLUGIN_PATH"); }

  static void on_ranks(const std::function<void(ronde::Engine&, float)>& body) {
    const ronde::LocalJob job(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ronde::Engine engine(job, rank);
        body(engine, static_cast<float>(rank));
        engine.close();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static std::vector<float> all(float value) { return std::vector<float>(kElements, value); }
  static std::span<float> span(const DeviceMemory& memory, std::size_t elements = kElements) {
    return {static_cast<float*>(memory.get()), elements};
  }
  static std::vector<float> read(std::span<const float> of_device) {
    std::vector<float> values(of_device.size());
    Device::instance().kit->read(values.data(), of_device.data(), of_device.size_bytes(), nullptr);
    return values;
  }
};

TEST_F(Facade, EveryOperationTakesADevice) {
  on_ranks([](ronde::Engine& engine, float rank) {
    const DeviceMemory memory(all(rank + 1));
    const DeviceMemory other(all(0));
    const ronde::DeviceSpan<float> tensor(span(memory));
    const ronde::DeviceSpan<float> another(span(other));
    engine.allreduce("a", tensor, ronde::sum).wait();
    EXPECT_EQ(memory.values<float>(), all(3));
    engine.allreduce("o", ronde::DeviceSpan<const float>(span(memory)), span(other), ronde::sum)
        .wait();
    EXPECT_EQ(other.values<float>(), all(6));
    const DeviceMemory mine(all(rank));
    engine.broadcast("b", ronde::DeviceSpan<float>(span(mine)), 1).wait();
    EXPECT_EQ(mine.values<float>(), all(1));
    const DeviceMemory half(std::vector<float>(kElements / 2, 0));
    engine.reduce_scatter("r", tensor, span(half, kElements / 2), ronde::sum).wait();
    EXPECT_EQ(half.values<float>(), std::vector<float>(kElements / 2, 6));
    ronde::Work gathered = engine.allgather("g", ronde::DeviceSpan<float>(span(mine, 2)));
    gathered.wait();
    EXPECT_EQ(read(gathered.output<float>()), (std::vector<float>{1, 1, 1, 1}));
    ronde::Work exchanged = engine.all_to_all("x", tensor, {10, 90});
    exchanged.wait();
    EXPECT_EQ(exchanged.output<float>().size(), rank == 0 ? 20U : 180U);
    engine.grouped_allreduce<float>({{"g1", tensor}, {"g2", another}}, ronde::average).wait();
    EXPECT_EQ(memory.values<float>(), all(3));
    engine.grouped_broadcast<float>({{"g1", tensor}, {"g2", another}}).wait();
    engine.barrier("done", tensor).wait();
  });
}

TEST_F(Facade, AStreamWaitsAndTheResultIsKnown) {
  on_ranks([](ronde::Engine& engine, float rank) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceMemory memory(all(rank));
    const DeviceMemory copy(std::vector<float>(2 * kElements, 0));
    void* const before = kit.make_stream();
    void* const after = kit.make_stream();
    kit.delay(before, 300);
    ronde::Work work = engine.allgather("g", ronde::DeviceSpan<float>(span(memory), 0, before));
    work.wait(after);
    EXPECT_FALSE(work.poll()) << "the host has waited for the device";
    const std::span<const float> result = work.output<float>();
    ASSERT_EQ(result.size(), 2 * kElements);
    kit.copy(after, copy.get(), result.data(), result.size_bytes());
    kit.synchronize(after);
    std::vector<float> expected = all(0);
    expected.insert(expected.end(), kElements, 1.0F);
    EXPECT_EQ(copy.values<float>(), expected);
    work.wait();
    kit.free_stream(before);
    kit.free_stream(after);
  });
}

// The memory is the caller's again in the stream, so the end of the scope does not wait.
TEST_F(Facade, R1AWorkThatAStreamWaitsForIsNotWaitedForAgain) {
  on_ranks([](ronde::Engine& engine, float rank) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceMemory memory(all(rank));
    void* const stream = kit.make_stream();
    for (const bool waits : {true, false}) {
      engine.barrier_blocking();
      const auto began = std::chrono::steady_clock::now();
      kit.delay(stream, waits ? 3000 : 300);
      {
        auto work = engine.allreduce("t", ronde::DeviceSpan<float>(span(memory), 0, stream));
        if (waits) work.wait(stream);
      }
      const auto took = std::chrono::steady_clock::now() - began;
      if (waits) {
        EXPECT_LT(took, std::chrono::milliseconds(2900));
      } else {
        EXPECT_GE(took, std::chrono::milliseconds(200));
      }
      kit.synchronize(stream);
    }
    kit.free_stream(stream);
  });
}

TEST_F(Facade, TheTableOfRanksEndsWithTheDevice) {
  on_ranks([](ronde::Engine& engine, float /*rank*/) {
    EXPECT_THAT(engine.describe(), HasSubstr(" in shared memory\nthe plug-in '"));
  });
}

TEST_F(Facade, ErrorsSayWhatIsWrong) {
  on_ranks([](ronde::Engine& engine, float /*rank*/) {
    std::vector<float> host = all(1);
    try {
      engine.allreduce("t", ronde::DeviceSpan<float>(host), ronde::sum).wait();
      ADD_FAILURE() << "host memory was taken for that of a device";
    } catch (const ronde::Error& error) {
      EXPECT_EQ(error.status(), RONDE_INVALID_ARGUMENT);
      EXPECT_THAT(error.what(), HasSubstr("'t': the tensor is declared as memory of device 0"));
    }
    ronde::Work work = engine.allreduce("h", std::span(host), ronde::sum);
    EXPECT_THROW(work.wait(nullptr), ronde::Error);
    work.wait();
    ronde_request request;
    ronde_request_init(&request);
    request.name = "s";
    const std::int64_t length = kElements;
    request.shape = &length;
    request.dimensions = 1;
    request.output = host.data();
    request.stream = host.data();
    EXPECT_EQ(ronde_allreduce(engine.get(), &request, nullptr), RONDE_UNSUPPORTED);
    EXPECT_EQ(ronde_work_wait_stream(nullptr, nullptr, nullptr), RONDE_INVALID_ARGUMENT);
  });
}

}  // namespace
}  // namespace ronde::device_test
