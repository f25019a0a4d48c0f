// SPDX-License-Identifier: Apache-2.0
// Whole engines with the GPU plug-in, where CUDA or NCCL fails under them.
#include "test/device/cuda/cuda_fixture.h"
#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using runtime::Engine;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::open_engines;

class CudaRuntime : public CudaTest {};

TEST_F(CudaRuntime, AnErrorOfNcclEndsTheJob) {
  const auto engines = open_engines(2, options_of_device());
  const auto begin = std::chrono::steady_clock::now();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(floats(10, 1));
    const DeviceStream stream;
    Device::instance().kit->delay(stream.get(), 200);
    const auto work = engine.submit(device_allreduce("t", memory, 10, stream.get()));
    if (!work.ok()) return;  // the other rank was faster
    fakes().set("async_error", 1);
    EXPECT_THAT(engine.wait(**work).message(), HasSubstr("a peer has failed"));
    EXPECT_FALSE(engine.let_stream_wait(**work, stream.get()).ok());
  });
  on_ranks(2,
           [&](int rank) { EXPECT_FALSE(engines[static_cast<std::size_t>(rank)]->close().ok()); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(fakes().get("streams"), 0);
  EXPECT_EQ(fakes().get("events"), 0) << "marks of what has failed are given back";
}

TEST_F(CudaRuntime, AResultThatFindsNoMemoryIsAnErrorThatSaysHowMuchAndWhere) {
  const auto engines = open_engines(2, options_of_device());
  fakes().set("no_memory", 1);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(floats(10, 1));
    const auto work = engine.submit(
        device_vector("t", runtime::Operation::kAllgather, 10, memory.get(), nullptr));
    if (!work.ok()) return;  // the other rank was faster
    EXPECT_THAT(engine.wait(**work).message(), HasSubstr("80 bytes on device 0"));
  });
  on_ranks(2, [&](int rank) { engines[static_cast<std::size_t>(rank)]->close().ignore(); });
  EXPECT_EQ(fakes().get("streams"), 0);
  EXPECT_EQ(fakes().get("results"), 0);
}

TEST_F(CudaRuntime, NobodyCallsCudaWithoutTheDeviceOrInTheWayOfACapture) {
  for (const char* const toy : {"", "staged"}) {
    set_environment("RONDE_TOY", toy);
    testing::run_job(2, options_of_device(), [](int /*rank*/, Engine& engine) {
      const DeviceMemory memory(floats(10, 1));
      const DeviceStream stream;
      const auto work = engine.submit(device_allreduce("t", memory, 10, stream.get()));
      ASSERT_TRUE(work.ok()) << work.status().message();
      const base::Status status = engine.let_stream_wait(**work, stream.get());
      EXPECT_TRUE(status.ok()) << status.message();
      Device::instance().kit->synchronize(stream.get());
      EXPECT_EQ(memory.values<float>(), floats(10, 2));
    });
  }
  EXPECT_EQ(fakes().get("outside"), 0);
  EXPECT_EQ(fakes().get("strict"), 0);
  EXPECT_EQ(fakes().get("events"), 0);
  EXPECT_EQ(fakes().get("host_blocks"), 0);
}

}  // namespace
}  // namespace ronde::device_test
