// SPDX-License-Identifier: Apache-2.0
// Marks, and memory that the GPU plug-in lends: what they keep, and what they wait for.
#include <cstddef>

#include "test/device/cuda/cuda_fixture.h"

namespace ronde::device_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

class CudaMarks : public CudaTest {};
class CudaMemory : public CudaTest {};

// The text of a mark that is refused.
std::string refused_mark(DeviceRank& rank, void* stream, void* event) {
  Text text{};
  ronde_plugin_mark* mark = nullptr;
  EXPECT_EQ(rank.plugin().mark(rank.engine(), stream, event, &mark, text.data(), text.size()),
            RONDE_PLUGIN_INVALID);
  EXPECT_EQ(mark, nullptr);
  return text.data();
}

TEST_F(CudaMarks, AStreamAndAnEventAreNotedAsTheyAreNow) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    for (const bool with_event : {false, true}) {
      const DeviceStream stream;
      const DeviceStream other;
      const DeviceMemory source(floats(10, 5));
      const DeviceMemory memory(floats(10, 0));
      stream.delay(30);
      kit.copy(stream.get(), memory.get(), source.get(), 10 * sizeof(float));
      void* const event = with_event ? kit.make_event(stream.get()) : nullptr;
      ronde_plugin_mark* const mark = rank.mark(stream.get(), event);
      // Later than the mark, so nobody waits for it.
      stream.delay(3000);
      other.delay(3000);
      if (with_event) {
        kit.record_event(event, other.get());
        kit.free_event(event);
      }
      const auto begin = steady_clock::now();
      Batch batch;
      batch.add(memory, 10, mark);
      ronde_plugin_work* const work = rank.execute(batch.get());
      rank.unmark(mark);
      // This mark takes the same event of the pool.
      const MarkOwner next(rank, other.get());
      ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
      EXPECT_LT(steady_clock::now() - begin, milliseconds(2900)) << "with an event: " << with_event;
      EXPECT_EQ(memory.values<float>(), floats(10, 10)) << "with an event: " << with_event;
    }
  });
}

TEST_F(CudaMarks, AnEventThatHasComeIsNotWaitedFor) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream stream;
    void* const event = kit.make_event(stream.get());
    kit.synchronize(stream.get());
    fakes().reset();
    const MarkOwner ready(rank, stream.get(), event);
    EXPECT_EQ(trace(), "");
    kit.free_event(event);
    const DeviceMemory memory(floats(10, 1));
    Batch batch;
    batch.add(memory, 10, ready.get());
    EXPECT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
    EXPECT_THAT(trace(), Not(HasSubstr("gate: wait")));
  });
}

TEST_F(CudaMarks, WhatIsUnderCaptureIsRefused) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream stream;
    const DeviceMemory memory(floats(10, 1));
    Batch batch;
    batch.add(memory, 10);
    ronde_plugin_work* const work = rank.execute(batch.get());
    kit.begin_capture(stream.get());
    void* const event = kit.make_event(stream.get());
    fakes().reset();
    EXPECT_THAT(refused_mark(rank, stream.get(), nullptr), HasSubstr("under graph capture"));
    EXPECT_THAT(refused_mark(rank, nullptr, event), HasSubstr("the ready event: "));
    EXPECT_EQ(rank.wait_on(work, stream.get()), RONDE_PLUGIN_INVALID);
    EXPECT_THAT(trace(), Not(HasSubstr("user"))) << "that would become part of the graph";
    kit.end_capture(stream.get());
    EXPECT_EQ(rank.wait_on(work, stream.get()), RONDE_PLUGIN_OK);
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    kit.free_event(event);
  });
}

// From many threads, while batches run: what the thread sanitizer looks at.
TEST_F(CudaMarks, AnyThreadMarks) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&rank, &kit] {
        const DeviceStream stream;
        void* const event = kit.make_event(stream.get());
        for (int round = 0; round < 50; ++round) {
          kit.record_event(event, stream.get());
          const MarkOwner one(rank, stream.get());
          const MarkOwner two(rank, nullptr, event);
        }
        kit.free_event(event);
      });
    }
    for (int round = 0; round < 20; ++round) {
      const DeviceMemory memory(floats(10, 1));
      Batch batch;
      batch.add(memory, 10);
      EXPECT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(fakes().get("events"), 0);
  EXPECT_EQ(fakes().get("strict"), 0);
}

TEST_F(CudaMarks, ABarrierBeginsBehindItsTensorAndHasNoOther) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceStream stream;
    stream.delay(50);
    const MarkOwner ready(rank, stream.get());
    Batch barrier(RONDE_PLUGIN_BARRIER);
    barrier.tensors.push_back({nullptr, nullptr, 0, ready.get()});
    const auto begin = steady_clock::now();
    EXPECT_EQ(rank.finish(rank.execute(barrier.get())), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_GE(steady_clock::now() - begin, milliseconds(40));
    barrier.tensors.push_back({nullptr, nullptr, 0, nullptr});
    Text text{};
    ronde_plugin_work* work = nullptr;
    EXPECT_EQ(rank.plugin().execute(rank.engine(), &barrier.get(), &work, text.data(), text.size()),
              RONDE_PLUGIN_INVALID);
  });
}

// ---- memory ----

TEST_F(CudaMemory, AResultIsThereWhenItIsGivenAndOutlivesTheEngine) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const ronde_plugin& plugin = rank.plugin();
    const ronde_device_kit& kit = *Device::instance().kit;
    fakes().set("memory_delay", 50);
    void* memory = nullptr;
    std::int32_t device = -1;
    Text text{};
    const auto begin = steady_clock::now();
    ASSERT_EQ(plugin.allocate(rank.engine(), 400, &memory, &device, text.data(), text.size()),
              RONDE_PLUGIN_OK)
        << text.data();
    EXPECT_GE(steady_clock::now() - begin, milliseconds(45)) << "no stream has to wait for it";
    EXPECT_EQ(device, 0);
    rank.close();
    EXPECT_EQ(fakes().get("results"), 1);
    // Behind what is in the default stream, and without waiting for it.
    kit.delay(nullptr, 2000);
    const auto free = steady_clock::now();
    std::thread([&plugin, device, memory] { plugin.free(device, memory); }).join();
    EXPECT_LT(steady_clock::now() - free, milliseconds(1900));
    EXPECT_EQ(fakes().get("results"), 1);
    kit.synchronize(nullptr);
    EXPECT_EQ(fakes().get("results"), 0);
  });
}

TEST_F(CudaMemory, HostMemoryIsUsedAgain) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const ronde_plugin& plugin = rank.plugin();
    Text text{};
    const auto allocate = [&](std::size_t bytes) {
      void* memory = nullptr;
      EXPECT_EQ(plugin.allocate_host(rank.engine(), bytes, &memory, text.data(), text.size()),
                RONDE_PLUGIN_OK)
          << text.data();
      return memory;
    };
    fakes().reset();
    void* const one = allocate(100'000);
    void* const two = allocate(100'000);
    EXPECT_NE(one, two);
    plugin.free_host(rank.engine(), one);
    EXPECT_EQ(allocate(90'000), one);
    EXPECT_NE(allocate(200'000), one);
    EXPECT_EQ(fakes().get("host_allocations"), 3);
    plugin.free_host(rank.engine(), two);
    plugin.free_host(rank.engine(), one);
    // Ten bytes do not get a hundred thousand.
    EXPECT_NE(allocate(10), two);
    // Sizes that grow slowly do not pin a new block each time.
    constexpr std::size_t kMebibyte = std::size_t{1} << 20;
    void* const large = allocate(100 * kMebibyte);
    plugin.free_host(rank.engine(), large);
    EXPECT_EQ(allocate(104 * kMebibyte), large);
  });
}

}  // namespace
}  // namespace ronde::device_test
