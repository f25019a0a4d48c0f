// SPDX-License-Identifier: Apache-2.0
// What the GPU plug-in puts into which stream, what it borrows, and what comes out.
#include "test/device/cuda/cuda_fixture.h"

namespace ronde::device_test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kLarge = 300'000;  // f32: above what is packed

class CudaEngine : public CudaTest {};

TEST_F(CudaEngine, SaysItsVersions) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_STREQ(rank.info().versions, "CUDA 0.0, driver 0.1, NCCL 2.28.9, Fake GPU");
    EXPECT_EQ(rank.info().has_collectives, 1);
    EXPECT_EQ(rank.log(), "");
  });
}

TEST_F(CudaEngine, PacksSmallTensorsAndReducesLargeOnesInOneGroup) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceMemory one(floats(10, 1));
    const DeviceMemory two(floats(20, 2));
    const DeviceMemory large(floats(kLarge, 3));
    Batch batch;
    batch.add(one, 10);
    batch.add(large, kLarge);
    batch.add(two, 20);
    fakes().reset();
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK) << rank.text();
    std::string comm;
    std::istringstream lines(trace());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("comm")) comm += line + "\n";
    }
    EXPECT_EQ(comm, "comm: wait\ncomm: pack 2\ncomm: nccl 2\ncomm: pack 2\ncomm: record\n");
    EXPECT_THAT(trace(), HasSubstr("comm: record\nchime: wait\nchime: call\n"));
    EXPECT_EQ(fakes().get("launches"), 1);
  });
}

TEST_F(CudaEngine, OneSmallTensorIsNotPacked) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceMemory one(floats(10, 1));
    Batch batch;
    batch.add(one, 10);
    fakes().reset();
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
    EXPECT_THAT(trace(), Not(HasSubstr("pack")));
    EXPECT_EQ(fakes().get("allocations"), 0);
  });
}

// All ways that a number can take: packed or where it lies, alone or not.
void expect_scaled(DeviceRank& rank, const std::vector<std::size_t>& lengths, std::int32_t op,
                   std::int32_t compression, float expected) {
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  Batch batch;
  for (const std::size_t length : lengths) {
    memory.push_back(std::make_unique<DeviceMemory>(floats(length, 4)));
    batch.add(*memory.back(), length);
  }
  batch.batch.op = op;
  batch.batch.prescale = 0.5;
  batch.batch.postscale = 8;
  batch.batch.compression = compression;
  ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK) << rank.text();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(memory[i]->values<float>(), floats(lengths[i], expected))
        << "op " << op << ", compression " << compression << ", tensor " << i;
  }
}

TEST_F(CudaEngine, ScalesOnEveryWay) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    for (const std::int32_t compression : {0, 1, 2}) {
      for (const std::vector<std::size_t>& lengths :
           {std::vector<std::size_t>{7}, {7, 0, 9}, {kLarge}, {7, kLarge, 9}}) {
        expect_scaled(rank, lengths, kSum, compression, 32);
        expect_scaled(rank, lengths, kAverage, compression, 16);
        expect_scaled(rank, lengths, kMin, compression, 16);
      }
    }
  });
}

constexpr std::uint16_t k32768 = 0x7800;  // of f16: twice as much is infinite

TEST_F(CudaEngine, TheAverageOfLargeF16IsNotInfinite) {
  DeviceJob(2).run([](DeviceRank& rank) {
    const std::vector<std::uint16_t> values(50, k32768);
    const DeviceMemory one(values);
    const DeviceMemory two(values);
    for (const bool packed : {true, false}) {
      Batch batch;
      batch.batch.dtype = kF16;
      batch.batch.op = kAverage;
      batch.add(one, 50);
      if (packed) batch.add(two, 50);
      ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK) << rank.text();
      EXPECT_EQ(one.values<std::uint16_t>(), values) << "packed: " << packed;
    }
  });
}

TEST_F(CudaEngine, BroadcastsManySmallTensorsInOneCall) {
  DeviceJob(3).run([](DeviceRank& rank) {
    const auto mine = static_cast<float>(rank.rank());
    const DeviceMemory one(floats(10, mine));
    const DeviceMemory two(floats(20, mine));
    const DeviceMemory out(floats(20, -1));
    Batch batch(RONDE_PLUGIN_BROADCAST);
    batch.batch.root = 1;
    batch.add(one, 10);
    batch.tensors.push_back({rank.rank() == 1 ? two.get() : nullptr, out.get(), 20, nullptr, {}});
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(one.values<float>(), floats(10, 1));
    EXPECT_EQ(out.values<float>(), floats(20, 1));
  });
}

TEST_F(CudaEngine, AReadyEventMayGoWhenExecuteHasReturned) {
  DeviceJob(2).run([](DeviceRank& rank) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const UserStream stream;
    const DeviceMemory source(floats(10, 5));
    const DeviceMemory memory(floats(10, 0));
    stream.delay(30);
    kit.copy(stream.get(), memory.get(), source.get(), 10 * sizeof(float));
    void* const event = kit.make_event(stream.get());
    Batch batch;
    batch.add(memory, 10, stream.get(), event);
    ronde_plugin_work* const work = rank.execute(batch.get());
    kit.free_event(event);
    batch.tensors.clear();
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    EXPECT_EQ(memory.values<float>(), floats(10, 10));
  });
}

TEST_F(CudaEngine, MemoryIsLentToOneBatchAtATime) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const UserStream stream;
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    const auto put = [&](float value) {
      Batch batch;
      for (int i = 0; i < 2; ++i) {
        memory.push_back(std::make_unique<DeviceMemory>(floats(100, value)));
        batch.add(*memory.back(), 100, stream.get());
      }
      return rank.execute(batch.get());
    };
    for (const int round : {0, 1}) {
      fakes().reset();
      stream.delay(50);
      std::vector<ronde_plugin_work*> works;
      for (int i = 0; i < 3; ++i) works.push_back(put(static_cast<float>(i)));
      // One block is there from the first barrier; nobody has given one back meanwhile.
      EXPECT_EQ(fakes().get("allocations"), round == 0 ? 2 : 0);
      for (ronde_plugin_work* const work : works) {
        ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
      }
      for (std::size_t i = 0; i < memory.size(); ++i) {
        EXPECT_EQ(memory[i]->values<float>(), floats(100, static_cast<float>(i / 2)));
      }
      memory.clear();
      // The issuing thread lets go of what is over when it looks next.
      std::this_thread::sleep_for(std::chrono::milliseconds(120));
    }
  });
}

TEST_F(CudaEngine, WaitsForNcclBeforeItPutsMoreIntoTheStream) {
  fakes().set("steps", 500);
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    const UserStream after;
    const DeviceMemory one(floats(10, 1));
    const DeviceMemory two(floats(20, 2));
    const DeviceMemory seen(floats(10, 0));
    Batch batch;
    batch.add(one, 10);
    batch.add(two, 20);
    ronde_plugin_work* const first = rank.execute(batch.get());
    ronde_plugin_work* const second = rank.execute(batch.get());
    Text text{};
    ASSERT_EQ(rank.plugin().wait_on(rank.engine(), second, after.get(), text.data(), text.size()),
              RONDE_PLUGIN_OK)
        << text.data();
    kit.copy(after.get(), seen.get(), one.get(), 10 * sizeof(float));
    kit.synchronize(after.get());
    EXPECT_EQ(seen.values<float>(), floats(10, 4)) << "both batches are over";
    ASSERT_EQ(rank.finish(first), RONDE_PLUGIN_OK);
    ASSERT_EQ(rank.finish(second), RONDE_PLUGIN_OK);
    EXPECT_EQ(two.values<float>(), floats(20, 8));
  });
}

TEST_F(CudaEngine, TheCallersDeviceStaysCurrent) {
  DeviceJob(2).run([](DeviceRank&) {});
  EXPECT_EQ(fakes().get("outside"), 0);
  std::thread([] {
    fakes().set_current_device(3);
    DeviceJob job(1);
    DeviceRank rank(job, 0);
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(rank.info().device, 3);
    EXPECT_EQ(fakes().current_device(), 3);
    fakes().set_current_device(5);
    const UserStream stream;
    const DeviceMemory memory(floats(10, 1));
    Batch batch;
    batch.add(memory, 10, stream.get());
    ronde_plugin_work* work = rank.execute(batch.get());
    Text text{};
    ronde_plugin_memory place{};
    const ronde_plugin& plugin = rank.plugin();
    EXPECT_EQ(plugin.wait_on(rank.engine(), work, stream.get(), text.data(), text.size()),
              RONDE_PLUGIN_OK);
    EXPECT_EQ(plugin.classify(rank.engine(), memory.get(), &place, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    EXPECT_EQ(place.device, 3);
    EXPECT_EQ(plugin.check_stream(rank.engine(), stream.get(), text.data(), text.size()),
              RONDE_PLUGIN_OK);
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    rank.close();
    EXPECT_EQ(fakes().current_device(), 5);
  }).join();
  EXPECT_EQ(fakes().get("outside"), 0) << "calls for a device that was not current";
}

TEST_F(CudaEngine, CloseFreesEverything) {
  DeviceJob(2).run([](DeviceRank& rank) {
    const DeviceMemory one(floats(10, 1));
    const DeviceMemory two(floats(20, 2));
    Batch batch;
    batch.add(one, 10);
    batch.add(two, 20);
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
  });
  EXPECT_EQ(fakes().get("streams"), 0);
  EXPECT_EQ(fakes().get("events"), 0);
  EXPECT_EQ(fakes().get("blocks"), 0);
  EXPECT_EQ(fakes().get("destroyed"), 2);
  EXPECT_EQ(fakes().get("aborted"), 0);
}

}  // namespace
}  // namespace ronde::device_test
