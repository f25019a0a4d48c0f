// SPDX-License-Identifier: Apache-2.0
// Tensors that do not lie where their owner says are refused at once, by name, and the engine lives
// on.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using base::Code;
using runtime::Engine;
using runtime::Operation;
using runtime::Submission;
using ::testing::HasSubstr;
using testing::submit_and_wait;

constexpr std::int64_t kFewElements = 8;

class DeviceDeclarations : public ::testing::Test {
 protected:
  DeviceDeclarations() : engines_(testing::open_engines(1, options_of_device())) {}
  ~DeviceDeclarations() override {
    // Whatever was refused, the next one is served.
    const auto status = submit_and_wait(engine(), device_allreduce("next", memory_, kFewElements));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(engine().close().ok());
  }

  Engine& engine() { return *engines_.front(); }
  void expect_refused(const Submission& submission, const std::string& text) {
    const auto work = engine().submit(submission);
    ASSERT_FALSE(work.ok()) << "taken, and it should be: " << text;
    EXPECT_EQ(work.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(work.status().message(), text);
  }

  std::vector<testing::EnginePtr> engines_;
  DeviceMemory memory_{std::vector<float>(kFewElements, 1.0F)};
  std::vector<float> host_ = std::vector<float>(kFewElements, 1.0F);
};

TEST_F(DeviceDeclarations, HostMemoryThatIsDeclaredAsOfADevice) {
  expect_refused(
      device_vector("t", Operation::kAllreduce, kFewElements, nullptr, host_.data()),
      "'t': the tensor is declared as memory of device 0 and is host memory: set device to "
      "RONDE_DEVICE_CPU");
}

TEST_F(DeviceDeclarations, DeviceMemoryThatIsDeclaredAsOfTheHost) {
  Submission submission = device_allreduce("t", memory_, kFewElements);
  submission.signature.device = -1;
  expect_refused(submission,
                 "'t': the tensor is declared as host memory and is memory of device 0: set device "
                 "to 0");
}

TEST_F(DeviceDeclarations, EachPointerIsLookedAt) {
  expect_refused(
      device_vector("t", Operation::kAllreduce, kFewElements, host_.data(), memory_.get()),
      "'t': the input is declared as memory of device 0 and is host memory: set device to "
      "RONDE_DEVICE_CPU");
  expect_refused(
      device_vector("t", Operation::kAllreduce, kFewElements, memory_.get(), host_.data()),
      "'t': the output is declared as memory of device 0 and is host memory: set device to "
      "RONDE_DEVICE_CPU");
}

TEST_F(DeviceDeclarations, OfAGroupTheMemberIsNamed) {
  std::vector<Submission> tensors{
      device_allreduce("good", memory_, kFewElements),
      device_vector("bad", Operation::kAllreduce, kFewElements, nullptr, host_.data())};
  expect_refused(runtime::group_of(std::move(tensors)).value(),
                 "'bad': the tensor is declared as memory of device 0 and is host memory: set "
                 "device to RONDE_DEVICE_CPU");
}

TEST_F(DeviceDeclarations, AnotherDeviceThanThatOfTheRank) {
  Submission submission = device_allreduce("t", memory_, kFewElements);
  submission.signature.device = 3;
  expect_refused(submission,
                 "'t': it is declared as memory of device 3, but this rank uses device 0");
  Submission barrier = device_barrier("b");
  barrier.signature.device = 3;
  expect_refused(barrier, "'b': it is declared as of device 3, but this rank uses device 0");
}

TEST_F(DeviceDeclarations, AStreamUnderCapture) {
  const DeviceStream stream;
  const ronde_device_kit& kit = *Device::instance().kit;
  kit.begin_capture(stream.get());
  expect_refused(device_allreduce("t", memory_, kFewElements, stream.get()),
                 "'t': the stream is under graph capture: end the capture before the tensor is "
                 "submitted");
  kit.end_capture(stream.get());
  EXPECT_TRUE(
      submit_and_wait(engine(), device_allreduce("t", memory_, kFewElements, stream.get())).ok());
}

TEST_F(DeviceDeclarations, MemoryOfNoBytesIsNotLookedAt) {
  EXPECT_TRUE(
      submit_and_wait(engine(), device_vector("t", Operation::kAllreduce, 0, nullptr, host_.data()))
          .ok());
}

TEST(DeviceDeclarationsOfRanks, ThatDifferAreAMismatch) {
  testing::run_job(3, options_of_device(), [](int rank, Engine& engine) {
    std::vector<float> host(kFewElements, 1.0F);
    const DeviceMemory memory(std::vector<float>(kFewElements, 1.0F));
    const auto disagreeing =
        submit_and_wait(engine, rank == 1 ? device_allreduce("t", memory, kFewElements)
                                          : testing::allreduce_of("t", host));
    EXPECT_EQ(disagreeing.code(), Code::kMismatch);
    EXPECT_THAT(
        disagreeing.message(),
        HasSubstr("ranks 0, 2 submitted allreduce(sum, f32, [8]) at test.cc:1, rank 1 submitted "
                  "allreduce(sum, f32, [8], on a device) at test.cc:3"));
    const auto agreeing = submit_and_wait(engine, device_allreduce("t", memory, kFewElements));
    EXPECT_TRUE(agreeing.ok()) << agreeing.message();
    EXPECT_EQ(memory.values<float>(), std::vector<float>(kFewElements, 3.0F));
  });
}

TEST(DeviceDeclarationsOfRanks, BarriersOfHostsAndDevicesAreNotTheSame) {
  testing::run_job(2, options_of_device(), [](int rank, Engine& engine) {
    Submission barrier = testing::barrier_of("b");
    if (rank == 0) barrier = device_barrier("b");
    const auto status = submit_and_wait(engine, barrier);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(
        status.message(),
        HasSubstr("rank 0 submitted device barrier at test.cc:4, rank 1 submitted barrier"));
  });
}

TEST(DeviceDeclarationsWithoutADevice, SayWhyThereIsNone) {
  testing::run_job(1, [](int /*rank*/, Engine& engine) {
    const DeviceMemory memory(std::vector<float>(kFewElements, 1.0F));
    EXPECT_THAT(submit_and_wait(engine, device_barrier("b")).message(),
                HasSubstr("'b': it is declared as of device 0, but this engine serves no device"));
    const auto work = engine.submit(device_allreduce("t", memory, kFewElements));
    ASSERT_FALSE(work.ok());
    EXPECT_EQ(work.status().code(), Code::kUnsupported);
    EXPECT_EQ(work.status().message(),
              "'t': it is declared as memory of device 0, but this engine serves no device: there "
              "is no device plug-in beside libronde.so, and RONDE_PLUGIN_PATH is empty");
  });
}

}  // namespace
}  // namespace ronde::device_test
