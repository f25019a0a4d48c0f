// SPDX-License-Identifier: Apache-2.0
// What the GPU plug-in puts into which stream, what it borrows, and what comes out.
#include <atomic>
#include <cstddef>

#include "test/device/cuda/cuda_fixture.h"
#include "test/support/eventually.h"

namespace ronde::device_test {
namespace {

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
    EXPECT_EQ(fakes().get("launches"), 1);
  });
}

// A stream of CUDA takes so much and then blocks the thread that could end it: behind a rank that
// does not come only some batches are put there, and the others follow when it has come.
TEST_F(CudaEngine, ARankThatDoesNotComeFillsNoStream) {
  constexpr int kBatches = 100;
  DeviceJob job(2);
  job.run([&job](DeviceRank& rank) {
    const DeviceMemory memory(floats(10, 1));
    job.meet();
    if (rank.rank() == 0) fakes().reset();
    job.meet();
    std::vector<ronde_plugin_work*> works;
    const auto put_all = [&] {
      for (int i = 0; i < kBatches; ++i)
        works.push_back(rank.execute(Batch().add(memory, 10).get()));
    };
    if (rank.rank() == 1) {
      put_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_GT(fakes().get("launches"), 0);
      EXPECT_LT(fakes().get("launches"), kBatches / 2);
    }
    job.meet();
    if (rank.rank() == 0) put_all();
    for (ronde_plugin_work* const work : works) {
      EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK) << rank.text();
    }
  });
}

TEST_F(CudaEngine, OneSmallTensorIsNotPacked) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceMemory one(floats(10, 1));
    Batch batch;
    batch.add(one, 10);
    fakes().reset();
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
    EXPECT_THAT(trace(), Not(::testing::HasSubstr("pack")));
    EXPECT_EQ(fakes().get("allocations"), 0);
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

constexpr std::uint16_t k3 = 0x4200;    // of f16
constexpr std::uint16_t k0_1 = 0x2e66;  // the one next to a tenth

// In f16 the factor 1/3 is too small by 1/4096, and each product is rounded once more.
TEST_F(CudaEngine, TheAverageOfThreeEqualF16IsThatNumber) {
  DeviceJob(3).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    for (const std::size_t length : {std::size_t{50}, 3 * kLarge}) {
      for (const std::uint16_t value : {k3, k0_1, k32768}) {
        const std::vector<std::uint16_t> values(length, value);
        const DeviceMemory memory(values);
        Batch batch;
        batch.batch.dtype = kF16;
        batch.batch.op = kAverage;
        // Neither factor is exact; together they are 1.
        batch.batch.prescale = 0.1;
        batch.batch.postscale = 10;
        batch.add(memory, length);
        ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK) << rank.text();
        EXPECT_EQ(memory.values<std::uint16_t>(), values);
      }
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
    batch.tensors.push_back({rank.rank() == 1 ? two.get() : nullptr, out.get(), 20, nullptr});
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(one.values<float>(), floats(10, 1));
    EXPECT_EQ(out.values<float>(), floats(20, 1));
  });
}

TEST_F(CudaEngine, MemoryIsLentToOneBatchAtATime) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceStream stream;
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    const auto put = [&](float value) {
      const MarkOwner ready(rank, stream.get());
      Batch batch;
      for (int i = 0; i < 2; ++i) {
        memory.push_back(std::make_unique<DeviceMemory>(floats(100, value)));
        batch.add(*memory.back(), 100, ready.get());
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
    }
  });
}

TEST_F(CudaEngine, WaitsForNcclBeforeItPutsMoreIntoTheStream) {
  fakes().set("steps", 500);
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream after;
    const DeviceMemory one(floats(10, 1));
    const DeviceMemory two(floats(20, 2));
    const DeviceMemory seen(floats(10, 0));
    Batch batch;
    batch.add(one, 10);
    batch.add(two, 20);
    ronde_plugin_work* const first = rank.execute(batch.get());
    ronde_plugin_work* const second = rank.execute(batch.get());
    ASSERT_EQ(rank.wait_on(second, after.get()), RONDE_PLUGIN_OK) << rank.text();
    kit.copy(after.get(), seen.get(), one.get(), 10 * sizeof(float));
    kit.synchronize(after.get());
    EXPECT_EQ(seen.values<float>(), floats(10, 4)) << "both batches are over";
    ASSERT_EQ(rank.finish(first), RONDE_PLUGIN_OK);
    ASSERT_EQ(rank.finish(second), RONDE_PLUGIN_OK);
    EXPECT_EQ(two.values<float>(), floats(20, 8));
  });
}

// Whoever wants a stream to wait for a batch has to ask again then. Other rings may come first, as
// that of the opening. The batch of rank 0 is not over before rank 1 has executed its own.
TEST_F(CudaEngine, RingsWhenABatchIsInItsStream) {
  fakes().set("steps", 500);  // so that the first question comes too early
  std::atomic<bool> asked{false};
  DeviceJob(2).run([&asked](DeviceRank& rank) {
    const DeviceMemory memory(floats(10, 1));
    Batch batch;
    batch.add(memory, 10);
    if (rank.rank() == 1) {
      EXPECT_TRUE(testing::eventually([&] { return asked.load(); }));
      EXPECT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
      return;
    }
    const DeviceStream stream;
    ronde_plugin_work* const work = rank.execute(batch.get());
    auto status = RONDE_PLUGIN_PENDING;
    for (bool rung = true; rung && status == RONDE_PLUGIN_PENDING;) {
      const int rings = rank.rings();
      Text text{};
      status = rank.plugin().wait_on(rank.engine(), work, stream.get(), text.data(), text.size());
      if (status != RONDE_PLUGIN_PENDING) break;
      rung = testing::eventually([&] { return rank.rings() != rings; });
    }
    EXPECT_EQ(status, RONDE_PLUGIN_OK) << "it did not ring";
    EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING);
    asked = true;
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
  });
}

TEST_F(CudaEngine, TheCallersDeviceStaysCurrent) {
  DeviceJob(2).run([](DeviceRank&) {});
  EXPECT_EQ(fakes().get("outside"), 0);
  std::thread([] {
    fakes().set_current_device(3);
    DeviceJob job(1);
    DeviceRank rank = job.rank(0);
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(rank.info().device, 3);
    EXPECT_EQ(fakes().current_device(), 3);
    fakes().set_current_device(5);
    const DeviceStream stream;
    const DeviceMemory memory(floats(10, 1));
    ronde_plugin_mark* const ready = rank.mark(stream.get());
    Batch batch;
    batch.add(memory, 10, ready);
    ronde_plugin_work* work = rank.execute(batch.get());
    rank.unmark(ready);
    Text text{};
    ronde_plugin_memory place{};
    const ronde_plugin& plugin = rank.plugin();
    EXPECT_EQ(rank.wait_on(work, stream.get()), RONDE_PLUGIN_OK);
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

// Another thread of the program may capture a stream at any time, which makes most calls of CUDA
// fail in threads that have not said that they do not mind.
TEST_F(CudaEngine, NobodyMindsWhatIsCapturedElsewhere) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(fakes().capture_mode(), 0);
    fakes().set_capture_mode(1);
    const DeviceStream stream;
    const DeviceMemory one(floats(10, 1));
    const DeviceMemory two(floats(20, 2));
    ronde_plugin_mark* const ready = rank.mark(stream.get());
    Batch batch;
    batch.add(one, 10, ready);
    batch.add(two, 20);
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
    rank.unmark(ready);
    rank.close();
    EXPECT_EQ(fakes().capture_mode(), 1) << "the program's own choice is back";
  });
  EXPECT_EQ(fakes().get("strict"), 0);
}

TEST_F(CudaEngine, CloseFreesEverything) {
  DeviceJob(2).run([](DeviceRank& rank) {
    const DeviceMemory one(floats(10, 1));
    const DeviceMemory two(floats(20, 2));
    Batch batch;
    batch.add(one, 10);
    batch.add(two, 20);
    ASSERT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
    // Also what was not given back.
    EXPECT_NE(rank.mark(nullptr), nullptr);
    ronde_plugin_work* const work = rank.execute(batch.get());
    EXPECT_TRUE(testing::eventually([&] { return rank.poll(work) != RONDE_PLUGIN_PENDING; }));
    void* memory = nullptr;
    Text text{};
    EXPECT_EQ(rank.plugin().allocate_host(rank.engine(), 9, &memory, text.data(), text.size()),
              RONDE_PLUGIN_OK);
  });
  EXPECT_EQ(fakes().get("streams"), 0);
  EXPECT_EQ(fakes().get("host_blocks"), 0);
  EXPECT_EQ(fakes().get("events"), 0);
  EXPECT_EQ(fakes().get("blocks"), 0);
  EXPECT_EQ(fakes().get("destroyed"), 2);
  EXPECT_EQ(fakes().get("aborted"), 0);
}

}  // namespace
}  // namespace ronde::device_test
