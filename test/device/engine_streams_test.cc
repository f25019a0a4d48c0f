// SPDX-License-Identifier: Apache-2.0
// Order between the user's streams and the engine's work, without the host in between.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using runtime::Engine;
using testing::submit_and_wait;

constexpr std::int64_t kStreamElements = 500;
constexpr std::size_t kBytes = kStreamElements * sizeof(float);

std::vector<float> all(float value) { return std::vector<float>(kStreamElements, value); }

TEST(DeviceStreams, TheInputIsReadBehindTheStream) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream stream;
    const DeviceMemory source(all(static_cast<float>(rank + 1)));
    const DeviceMemory memory(all(-1000.0F));
    kit.delay(stream.get(), 30);
    kit.copy(stream.get(), memory.get(), source.get(), kBytes);
    ASSERT_TRUE(
        submit_and_wait(engine, device_allreduce("t", memory, kStreamElements, stream.get())).ok());
    EXPECT_EQ(memory.values<float>(), all(3.0F));
  });
}

TEST(DeviceStreams, AnEventIsEnough) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceMemory source(all(static_cast<float>(rank + 1)));
    const DeviceMemory memory(all(-1000.0F));
    const DeviceMemory late(all(0.0F));
    const DeviceStream stream;  // ends before the memory does
    kit.delay(stream.get(), 30);
    kit.copy(stream.get(), memory.get(), source.get(), kBytes);
    void* const event = kit.make_event(stream.get());
    kit.delay(stream.get(), 1000);
    kit.copy(stream.get(), late.get(), source.get(), kBytes);
    ASSERT_TRUE(
        submit_and_wait(engine, device_allreduce("t", memory, kStreamElements, stream.get(), event))
            .ok());
    EXPECT_EQ(memory.values<float>(), all(3.0F));
    EXPECT_EQ(late.values<float>(), all(0.0F)) << "what is behind the event was waited for";
    kit.free_event(event);
  });
}

// The batch runs long after submit: rank 1 comes late. By then the event is recorded again, behind
// what would hold the batch up, and the stream is gone.
TEST(DeviceStreams, StreamsAndEventsAreReadAtSubmit) {
  for (const char* const toy : {"", "staged"}) {
    ::setenv("RONDE_TOY", toy, 1);
    testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
      const ronde_device_kit& kit = *Device::instance().kit;
      const DeviceMemory one(all(-1000.0F));
      const DeviceMemory other(all(-1000.0F));
      const DeviceMemory source(all(static_cast<float>(rank + 1)));
      const DeviceMemory late(all(0.0F));
      const DeviceStream slow;
      void* const stream = kit.make_stream();
      kit.delay(stream, 30);
      kit.copy(stream, one.get(), source.get(), kBytes);
      kit.copy(stream, other.get(), source.get(), kBytes);
      void* const event = kit.make_event(stream);
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const auto a = engine.submit(device_allreduce("a", one, kStreamElements, stream));
      const auto b = engine.submit(device_allreduce("b", other, kStreamElements, stream, event));
      ASSERT_TRUE(a.ok() && b.ok());
      kit.delay(slow.get(), 1000);
      kit.copy(slow.get(), late.get(), source.get(), kBytes);
      kit.record_event(event, slow.get());
      kit.free_stream(stream);
      ASSERT_TRUE(engine.wait(**a).ok());
      ASSERT_TRUE(engine.wait(**b).ok());
      EXPECT_EQ(late.values<float>(), all(0.0F)) << "the event was read when the batch began";
      EXPECT_EQ(one.values<float>(), all(3.0F));
      EXPECT_EQ(other.values<float>(), all(3.0F));
      kit.synchronize(slow.get());
      kit.free_event(event);
    });
  }
  ::unsetenv("RONDE_TOY");
}

TEST(DeviceStreams, AStreamMayBeCapturedOnceTheTensorIsSubmitted) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceMemory memory(all(1.0F));
    const DeviceStream stream;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const auto work = engine.submit(device_allreduce("t", memory, kStreamElements, stream.get()));
    ASSERT_TRUE(work.ok());
    kit.begin_capture(stream.get());
    EXPECT_TRUE(engine.wait(**work).ok());
    kit.end_capture(stream.get());
    EXPECT_EQ(memory.values<float>(), all(2.0F));
  });
}

// The device takes a while before a stream can wait for it.
TEST(DeviceStreams, AStreamIsToldToWaitAsSoonAsThatCanBe) {
  ::setenv("RONDE_TOY", "late streams", 1);
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream before;
    const DeviceStream after;
    const DeviceMemory memory(all(static_cast<float>(rank + 1)));
    const DeviceMemory result(all(0.0F));
    kit.delay(before.get(), rank == 0 ? 200 : 100);
    const auto work = engine.submit(device_allreduce("t", memory, kStreamElements, before.get()));
    ASSERT_TRUE(work.ok());
    const auto waits = engine.let_stream_wait(**work, after.get());
    ASSERT_TRUE(waits.ok()) << waits.message();
    kit.copy(after.get(), result.get(), memory.get(), kBytes);
    kit.synchronize(after.get());
    EXPECT_EQ(result.values<float>(), all(3.0F));
    EXPECT_TRUE(engine.wait(**work).ok());
  });
  ::unsetenv("RONDE_TOY");
}

TEST(DeviceStreams, AStreamWaitsForTheWorkAndTheHostDoesNot) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream before;
    const DeviceStream after;
    const DeviceMemory memory(all(static_cast<float>(rank + 1)));
    const DeviceMemory result(all(0.0F));
    if (rank == 0) kit.delay(before.get(), 400);
    const auto work = engine.submit(device_allreduce("t", memory, kStreamElements, before.get()));
    ASSERT_TRUE(work.ok());
    const auto waits = engine.let_stream_wait(**work, after.get());
    ASSERT_TRUE(waits.ok()) << waits.message();
    EXPECT_FALSE((*work)->completion.done()) << "the host has waited for the device";
    kit.copy(after.get(), result.get(), memory.get(), kBytes);
    kit.synchronize(after.get());
    EXPECT_EQ(result.values<float>(), all(3.0F));
    ASSERT_TRUE(engine.wait(**work).ok());
    // Over, and for ever so.
    EXPECT_TRUE(engine.let_stream_wait(**work, after.get()).ok());
  });
}

TEST(DeviceStreams, ThroughHostMemoryTheHostWaits) {
  ::setenv("RONDE_TOY", "staged", 1);
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const DeviceStream stream;
    const DeviceMemory memory(all(static_cast<float>(rank + 1)));
    const auto work = engine.submit(device_allreduce("t", memory, kStreamElements));
    ASSERT_TRUE(work.ok());
    ASSERT_TRUE(engine.let_stream_wait(**work, stream.get()).ok());
    EXPECT_TRUE((*work)->completion.done());
    EXPECT_EQ(memory.values<float>(), all(3.0F));
  });
  ::unsetenv("RONDE_TOY");
}

TEST(DeviceStreams, LaterBatchesFollowWhileOneIsUnderWay) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream slow;
    const DeviceStream after;
    const DeviceMemory first(all(1.0F));
    const DeviceMemory second(all(2.0F));
    std::vector<float> host(100, 1.0F);
    if (rank == 0) kit.delay(slow.get(), 400);
    const auto a = engine.submit(device_allreduce("a", first, kStreamElements, slow.get()));
    ASSERT_TRUE(a.ok());
    ASSERT_TRUE(engine.let_stream_wait(**a, after.get()).ok());
    const auto b = engine.submit(device_allreduce("b", second, kStreamElements));
    ASSERT_TRUE(b.ok());
    ASSERT_TRUE(engine.let_stream_wait(**b, after.get()).ok());
    ASSERT_TRUE(submit_and_wait(engine, testing::allreduce_of("host", host)).ok());
    EXPECT_FALSE((*a)->completion.done()) << "neither the second nor host memory waits for it";
    ASSERT_TRUE(engine.wait(**b).ok());
    EXPECT_TRUE((*a)->completion.done()) << "they end in order";
    EXPECT_EQ(host, std::vector<float>(100, 2.0F));
    EXPECT_EQ(first.values<float>(), all(2.0F));
    EXPECT_EQ(second.values<float>(), all(4.0F));
  });
}

TEST(DeviceStreams, WhatIsReadyWhileTheDeviceIsBusyGoesTogether) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    constexpr int kTensors = 30;
    const DeviceStream slow;
    std::vector<std::unique_ptr<DeviceMemory>> memories;
    std::vector<Engine::WorkPtr> works;
    if (rank == 0) kit.delay(slow.get(), 300);
    for (int i = 0; i < kTensors; ++i) {
      memories.push_back(std::make_unique<DeviceMemory>(all(1.0F)));
      const auto work =
          engine.submit(device_allreduce("t" + std::to_string(i), *memories.back(), kStreamElements,
                                         i == 0 ? slow.get() : nullptr));
      ASSERT_TRUE(work.ok());
      works.push_back(*work);
    }
    for (const auto& work : works) ASSERT_TRUE(engine.wait(*work).ok());
    for (const auto& memory : memories) EXPECT_EQ(memory->values<float>(), all(2.0F));
    EXPECT_EQ(engine.statistics().tensors, 30U);
    EXPECT_LE(engine.statistics().batches, 6U);
  });
}

TEST(DeviceStreams, ForHostMemoryNoStreamCanWait) {
  testing::run_job(1, options_of_device(), [](int /*rank*/, Engine& engine) {
    const DeviceStream stream;
    std::vector<float> host(4, 1.0F);
    const auto work = engine.submit(testing::allreduce_of("t", host));
    ASSERT_TRUE(work.ok());
    const auto status = engine.let_stream_wait(**work, stream.get());
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "'t' is in host memory, which no stream can wait for: wait for it without one");
    EXPECT_TRUE(engine.wait(**work).ok());
  });
}

TEST(DeviceStreams, AStreamUnderCaptureCannotWait) {
  testing::run_job(1, options_of_device(), [](int /*rank*/, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream slow;
    const DeviceStream captured;
    const DeviceMemory memory(all(1.0F));
    kit.delay(slow.get(), 200);
    kit.begin_capture(captured.get());
    const auto work = engine.submit(device_allreduce("t", memory, kStreamElements, slow.get()));
    ASSERT_TRUE(work.ok());
    EXPECT_THAT(engine.let_stream_wait(**work, captured.get()).message(),
                ::testing::HasSubstr("'t': the stream is under graph capture"));
    kit.end_capture(captured.get());
    EXPECT_TRUE(engine.wait(**work).ok());
  });
}

TEST(DeviceStreams, NobodyNeedsToWait) {
  // The device rings the background thread.
  testing::run_job(2, options_of_device(), [](int /*rank*/, Engine& engine) {
    const DeviceMemory memory(all(1.0F));
    const auto work = engine.submit(device_allreduce("t", memory, kStreamElements));
    ASSERT_TRUE(work.ok());
    const auto end = std::chrono::steady_clock::now() + kHang;
    while (!(*work)->completion.done() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE((*work)->completion.done());
  });
}

TEST(DeviceStreams, ABarrierIsBehindTheStream) {
  for (const char* const toy : {"", "staged"}) {
    ::setenv("RONDE_TOY", toy, 1);
    testing::run_job(3, options_of_device(), [](int rank, Engine& engine) {
      const DeviceStream stream;
      const DeviceMemory source(all(1.0F));
      const DeviceMemory target(all(0.0F));
      if (rank == 0) stream.delay(30);
      stream.copy(target, source);
      const auto status = submit_and_wait(engine, device_barrier("barrier", stream.get()));
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(target.values<float>(), all(1.0F));
    });
  }
  ::unsetenv("RONDE_TOY");
}

}  // namespace
}  // namespace ronde::device_test
