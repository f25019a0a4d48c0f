// SPDX-License-Identifier: Apache-2.0
// GradientAverager with gradients in the memory of a toy device, through its plug-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/device/device_job.h"
#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::device_test::Device;
using ronde::device_test::DeviceMemory;
using ronde::testing::on_ranks;
using ::testing::Each;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr std::size_t kElements = 1000;
constexpr int kDelay = 50;  // milliseconds

class DeviceAverager : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (Device::instance().kit == nullptr)
      GTEST_SKIP() << "RONDE_DEVICE_PLUGIN names no toy device";
    ::setenv("RONDE_PLUGIN_PATH", std::getenv("RONDE_DEVICE_PLUGIN"), 1);
    ::setenv("RONDE_TOY", GetParam(), 1);
  }
  void TearDown() override {
    ::unsetenv("RONDE_TOY");
    ::unsetenv("RONDE_PLUGIN_PATH");
  }
};

// A rank's stream, and gradients that its "kernels" write.
class Trainer {
 public:
  explicit Trainer(float value) : start_(std::vector<float>(kElements, value)) {}
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer() {
    kit_.synchronize(stream_);
    kit_.free_stream(stream_);
  }
  [[nodiscard]] void* stream() const { return stream_; }
  [[nodiscard]] ronde::DeviceSpan<float> gradient() const {
    return ronde::DeviceSpan<float>({static_cast<float*>(gradient_.get()), kElements}, 0, stream_);
  }
  // Some time later, in the stream.
  void compute() const {
    kit_.delay(stream_, kDelay);
    kit_.copy(stream_, gradient_.get(), start_.get(), kElements * sizeof(float));
  }
  // What the stream finds in the gradient now.
  void use() const { use(*this); }
  void use(const Trainer& other) const {
    kit_.copy(stream_, used_.get(), other.gradient_.get(), kElements * sizeof(float));
  }
  [[nodiscard]] std::vector<float> used() const {
    kit_.synchronize(stream_);
    return used_.values<float>();
  }
  [[nodiscard]] std::vector<float> values() const { return gradient_.values<float>(); }

 private:
  const ronde_device_kit& kit_ = *Device::instance().kit;
  void* const stream_ = kit_.make_stream();
  const DeviceMemory start_;
  const DeviceMemory gradient_{kElements * sizeof(float)};
  const DeviceMemory used_{kElements * sizeof(float)};
};

float rank_and_one(const ronde::Engine& engine) { return static_cast<float>(engine.rank() + 1); }

TEST_P(DeviceAverager, StartsAtOnceAndHoldsTheOthersBack) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer trainer(rank_and_one(engine));
    std::vector<float> host(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto on_host = averager.add("on the host", std::span(host));
    const auto on_device = averager.add("on the device", trainer.gradient());
    trainer.compute();
    averager.ready(on_host);
    averager.ready(on_device);
    EXPECT_EQ(engine.statistics().full_requests, 1U) << "that of the device";
    averager.wait();
    EXPECT_THAT(trainer.values(), Each(FloatEq(3.0F)));
    EXPECT_THAT(host, Each(FloatEq(2.0F)));
  });
}

// The host runs ahead of the stream, over several steps.
TEST_P(DeviceAverager, AStreamWaitsForTheAverages) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer trainer(rank_and_one(engine));
    std::vector<float> host(10);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto on_device = averager.add("on the device", trainer.gradient());
    const auto on_host = averager.add("on the host", std::span(host));
    for (unsigned step = 0; step < 3; ++step) {
      host.assign(10, 1.0F);
      trainer.compute();
      averager.ready(on_device);
      averager.ready(on_host);
      averager.wait(trainer.stream());
      EXPECT_THAT(host, Each(FloatEq(2.0F))) << "the host waits for this one";
      if (GetParam() == std::string()) {
        EXPECT_EQ(engine.statistics().batches, 2U * step + 1) << "that of the device is on its way";
      }
      trainer.use();
    }
    EXPECT_THAT(trainer.used(), Each(FloatEq(3.0F)));
    averager.wait_again();
    EXPECT_THAT(trainer.values(), Each(FloatEq(3.0F)));
  });
}

TEST_P(DeviceAverager, GoesAwayWhenNothingIsOnItsWay) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer trainer(rank_and_one(engine));
    {
      ronde::GradientAverager averager(engine, ronde::sum);
      const auto id = averager.add("gradient", trainer.gradient());
      trainer.compute();
      averager.ready(id);
      averager.wait(trainer.stream());
    }
    EXPECT_EQ(engine.statistics().batches, 1U);
    EXPECT_THAT(trainer.values(), Each(FloatEq(3.0F)));
  });
}

TEST_P(DeviceAverager, SeveralStreamsWait) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer trainer(rank_and_one(engine));
    const Trainer logger(0.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto id = averager.add("gradient", trainer.gradient());
    trainer.compute();
    averager.ready(id);
    averager.wait(trainer.stream());
    averager.wait_again(logger.stream());
    logger.use(trainer);
    EXPECT_THAT(logger.used(), Each(FloatEq(3.0F)));
    averager.wait_again();
    EXPECT_EQ(averager.statistics().steps, 1U);
  });
}

// A stream that records cannot wait; another one can, afterwards.
TEST_P(DeviceAverager, AStreamThatCannotWaitLeavesItOnItsWay) {
  on_ranks(2, [](ronde::Engine& engine) {
    const ronde_device_kit& kit = *Device::instance().kit;
    const Trainer trainer(rank_and_one(engine));
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto id = averager.add("gradient", trainer.gradient());
    trainer.compute();
    averager.ready(id);
    void* const recording = kit.make_stream();
    kit.begin_capture(recording);
    EXPECT_THROW(averager.wait(recording), ronde::Error);
    kit.end_capture(recording);
    kit.free_stream(recording);
    averager.wait_again(trainer.stream());
    trainer.use();
    EXPECT_THAT(trainer.used(), Each(FloatEq(3.0F)));
  });
}

// The ranks disagree: the step that has it throws it, and the next one starts from there.
TEST_P(DeviceAverager, AnErrorIsThrownOnce) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer trainer(rank_and_one(engine));
    const Trainer other(0.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto good = averager.add("good", trainer.gradient());
    const auto whole = other.gradient();
    const auto elements = kElements - static_cast<std::size_t>(engine.rank());
    const auto bad = averager.add(
        "bad", ronde::DeviceSpan<float>(whole.data.first(elements), 0, other.stream()));
    averager.ready(bad);
    EXPECT_THROW(averager.wait(trainer.stream()), ronde::Error);
    averager.wait_again(trainer.stream());
    trainer.compute();
    averager.ready(good);
    EXPECT_THROW(averager.wait(trainer.stream()), ronde::Error);
    averager.wait_again();
    EXPECT_THAT(trainer.values(), Each(FloatEq(3.0F)));
  });
}

// What was not made ready is averaged as the stream holds it.
TEST_P(DeviceAverager, WhatWasNotMadeReadyIsAveragedAsItStands) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer used(rank_and_one(engine));
    const Trainer left_out(rank_and_one(engine));
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto used_id = averager.add("used", used.gradient());
    const auto left_out_id = averager.add("left out", left_out.gradient());
    used.compute();
    left_out.compute();
    averager.ready(used_id);
    if (engine.rank() == 0) averager.ready(left_out_id);
    averager.wait(used.stream());
    averager.wait_again();
    EXPECT_THAT(used.values(), Each(FloatEq(3.0F)));
    EXPECT_THAT(left_out.values(), Each(FloatEq(3.0F)));
  });
}

// The stream of the span counts, not that of add().
TEST_P(DeviceAverager, ASpanHoldsForItsStep) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer registered(0.0F);
    const Trainer trainer(rank_and_one(engine));
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto id = averager.add("gradient", registered.gradient());
    for (int step = 0; step < 2; ++step) {
      trainer.compute();
      averager.ready(id, trainer.gradient());
      averager.wait(trainer.stream());
      trainer.use();
      EXPECT_THAT(trainer.used(), Each(FloatEq(3.0F)));
    }
    averager.wait_again();
  });
}

// There are no zeros on a device, so no rank takes a wrong average for a right one.
TEST_P(DeviceAverager, WhatIsLeftOutAfterItMovedFailsOnAllRanks) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Trainer registered(0.0F);
    const Trainer trainer(rank_and_one(engine));
    std::vector<float> host(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto id = averager.add("gradient", registered.gradient());
    const auto on_host = averager.add("on the host", std::span(host));
    trainer.compute();
    averager.ready(id, trainer.gradient());
    averager.wait();
    averager.ready(on_host);
    if (engine.rank() == 0) averager.ready(id, trainer.gradient());
    EXPECT_THAT(ronde::testing::thrown_by([&] { averager.wait(); }),
                ::testing::AllOf(HasSubstr("'gradient'"), HasSubstr("on a device")));
    EXPECT_THAT(host, Each(FloatEq(4.0F)));
  });
}

INSTANTIATE_TEST_SUITE_P(Toys, DeviceAverager, ::testing::Values("", "staged"));

}  // namespace
