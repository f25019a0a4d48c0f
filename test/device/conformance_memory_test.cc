// SPDX-License-Identifier: Apache-2.0
// The suite that every back end must pass, about memory: its own, and copies of nothing.
#include <gmock/gmock.h>

#include <cstddef>
#include <string>

#include "test/device/device_job.h"

namespace ronde::device_test {
namespace {

TEST(ConformanceMemory, ResultsLiveInMemoryOfTheDeviceAndOutliveTheEngine) {
  DeviceJob(1).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    constexpr std::size_t kBytes = 100000;
    Text text{};
    void* memory = nullptr;
    std::int32_t device = -7;
    ASSERT_EQ(
        rank.plugin().allocate(rank.engine(), kBytes, &memory, &device, text.data(), text.size()),
        RONDE_PLUGIN_OK)
        << text.data();
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(device, rank.info().device);
    ronde_plugin_memory is{};
    ASSERT_EQ(rank.plugin().classify(rank.engine(), memory, &is, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    EXPECT_EQ(is.kind, RONDE_MEMORY_DEVICE);
    const std::string written(kBytes, 'x');
    kit.write(memory, written.data(), kBytes, nullptr);
    rank.close();
    std::string read(kBytes, ' ');
    kit.read(read.data(), memory, kBytes, nullptr);
    EXPECT_EQ(read, written);
    rank.plugin().free(device, memory);
  });
}

// How Ronde waits for a stream.
TEST(ConformanceMemory, ACopyOfNothingIsOverWhenTheTensorIsReady) {
  DeviceJob(1).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    void* const stream = kit.make_stream();
    kit.delay(stream, 50);
    ronde_plugin_tensor tensor{};
    tensor.ready = rank.mark(stream);
    ronde_plugin_copy copy{};
    copy.struct_size = sizeof copy;
    copy.tensor = &tensor;
    Text text{};
    ronde_plugin_work* work = nullptr;
    ASSERT_EQ(rank.plugin().copy_out(rank.engine(), &copy, &work, text.data(), text.size()),
              RONDE_PLUGIN_OK)
        << text.data();
    EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING);
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK) << rank.text();
    rank.unmark(tensor.ready);
    kit.free_stream(stream);
  });
}

// A barrier of a stream.
TEST(ConformanceMemory, ABarrierBeginsBehindItsTensorsStream) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    if (rank.info().has_collectives == 0) return;
    const ronde_device_kit& kit = *Device::instance().kit;
    void* const stream = kit.make_stream();
    if (rank.rank() == 0) kit.delay(stream, 50);
    ronde_plugin_tensor tensor{};
    tensor.ready = rank.mark(stream);
    ronde_plugin_batch batch{};
    batch.struct_size = sizeof batch;
    batch.sequence = 1;
    batch.operation = RONDE_PLUGIN_BARRIER;
    batch.tensors = &tensor;
    batch.tensor_count = 1;
    batch.prescale = batch.postscale = 1;
    ronde_plugin_work* const work = rank.execute(batch);
    if (rank.rank() == 0) {
      EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING);
    }
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK) << rank.text();
    rank.unmark(tensor.ready);
    kit.free_stream(stream);
  });
}

}  // namespace
}  // namespace ronde::device_test
