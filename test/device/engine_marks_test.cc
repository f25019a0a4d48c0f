// SPDX-License-Identifier: Apache-2.0
// How many marks of streams a device keeps for the tensors in flight, and for how long. Of the toy,
// which counts them.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using base::Code;
using runtime::Engine;
using runtime::Submission;
using testing::submit_and_wait;

constexpr std::int64_t kMarkedElements = 10;

struct Marks {
  std::int32_t now = 0;
  std::int32_t made = 0;
};

class DeviceMarks : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceMarks() { ::setenv("RONDE_TOY", GetParam(), 1); }
  ~DeviceMarks() override { ::unsetenv("RONDE_TOY"); }

  static Marks marks() {
    const char* const path = std::getenv("RONDE_DEVICE_PLUGIN");
    void* const library = ::dlopen(path == nullptr ? "" : path, RTLD_NOW | RTLD_LOCAL);
    const auto count = library == nullptr ? nullptr
                                          : reinterpret_cast<std::int32_t (*)(std::int32_t*)>(
                                                ::dlsym(library, "ronde_toy_marks"));
    Marks result;
    EXPECT_NE(count, nullptr) << "RONDE_DEVICE_PLUGIN is not the toy";
    if (count != nullptr) result.now = count(&result.made);
    return result;
  }
  static std::vector<float> ones() { return std::vector<float>(kMarkedElements, 1.0F); }
};

TEST_P(DeviceMarks, OneForEachStreamOfAGroupUntilItIsOver) {
  const Marks before = marks();
  testing::run_job(1, options_of_device(), [&](int /*rank*/, Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceStream one;
    const DeviceStream other;
    void* const event = kit.make_event(one.get());
    kit.delay(one.get(), 100);
    std::vector<std::unique_ptr<DeviceMemory>> memories;
    std::vector<Submission> group;
    for (int i = 0; i < 9; ++i) {
      memories.push_back(std::make_unique<DeviceMemory>(ones()));
      group.push_back(device_allreduce("t" + std::to_string(i), *memories.back(), kMarkedElements,
                                       i % 2 == 0 ? one.get() : other.get(),
                                       i % 3 == 0 ? event : nullptr));
    }
    const auto work = engine.submit(runtime::group_of(std::move(group)).value());
    ASSERT_TRUE(work.ok());
    EXPECT_EQ(marks().made, before.made + 4) << "two streams, with the event and without";
    EXPECT_EQ(marks().now, before.now + 4);
    ASSERT_TRUE(engine.wait(**work).ok());
    EXPECT_EQ(marks().now, before.now);
    kit.free_event(event);
  });
  EXPECT_EQ(marks().now, before.now);
}

TEST_P(DeviceMarks, NoneIsLeftOfWhatWasRefused) {
  const Marks before = marks();
  testing::run_job(1, options_of_device(), [&](int /*rank*/, Engine& engine) {
    const DeviceStream slow;
    Device::instance().kit->delay(slow.get(), 100);
    const DeviceMemory memory(ones());
    const DeviceMemory other(ones());
    const auto first = engine.submit(device_allreduce("t", memory, kMarkedElements, slow.get()));
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(engine.submit(device_allreduce("t", other, kMarkedElements)).status().code(),
              Code::kDuplicateName);
    EXPECT_EQ(marks().now, before.now + 1);
    ASSERT_TRUE(engine.wait(**first).ok());
    EXPECT_EQ(marks().now, before.now);
  });
}

TEST_P(DeviceMarks, NoneIsLeftOfWhatHasFailed) {
  const Marks before = marks();
  testing::run_job(3, options_of_device(), [&](int rank, Engine& engine) {
    const DeviceMemory memory(ones());
    Submission submission =
        device_allreduce("t", memory, rank == 1 ? kMarkedElements - 1 : kMarkedElements);
    EXPECT_EQ(submit_and_wait(engine, submission).code(), Code::kMismatch);
    // Nobody is behind: the second is agreed on when all have heard of the first.
    EXPECT_TRUE(submit_and_wait(engine, testing::barrier_of("b")).ok());
    EXPECT_EQ(marks().now, before.now);
  });
}

// What is known of a tensor may be kept longer than its marks: here behind an older one.
TEST_P(DeviceMarks, NoneIsLeftWhileOthersWait) {
  const Marks before = marks();
  testing::run_job(2, options_of_device(), [&](int rank, Engine& engine) {
    std::vector<float> host(kMarkedElements, 1.0F);
    auto early =
        rank == 0 ? engine.submit(testing::allreduce_of("early", host)) : Engine::WorkPtr();
    const DeviceMemory memory(ones());
    EXPECT_TRUE(submit_and_wait(engine, device_allreduce("t", memory, kMarkedElements)).ok());
    EXPECT_TRUE(submit_and_wait(engine, testing::barrier_of("b")).ok());
    EXPECT_EQ(marks().now, before.now);
    if (rank == 1) early = engine.submit(testing::allreduce_of("early", host));
    ASSERT_TRUE(early.ok());
    EXPECT_TRUE(engine.wait(**early).ok());
  });
}

TEST_P(DeviceMarks, NoneIsLeftOfAJobThatHasFailed) {
  const Marks before = marks();
  testing::EngineOptions options = options_of_device();
  options.environment.insert(options.environment.end(), {"RONDE_STALL_WARNING_SECONDS=0.05",
                                                         "RONDE_STALL_FAILURE_SECONDS=0.2"});
  const auto engines = testing::open_engines(2, options);
  testing::on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(ones());
    const DeviceStream stream;
    if (rank == 1) Device::instance().kit->delay(stream.get(), 600);
    const auto work = engine.submit(device_allreduce("t", memory, kMarkedElements, stream.get()));
    ASSERT_TRUE(work.ok());
    EXPECT_FALSE(engine.wait(**work).ok());
  });
  EXPECT_EQ(marks().now, before.now);
  testing::on_ranks(2,
                    [&](int rank) { engines[static_cast<std::size_t>(rank)]->close().ignore(); });
}

INSTANTIATE_TEST_SUITE_P(Toys, DeviceMarks, ::testing::Values("", "staged"));

}  // namespace
}  // namespace ronde::device_test
