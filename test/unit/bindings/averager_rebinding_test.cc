// SPDX-License-Identifier: Apache-2.0
// GradientAverager: gradients whose memory moves, ranks that leave some out, and what its
// statistics say of them.
// Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;
using ronde::testing::thrown_by;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::FloatEq;
using ::testing::HasSubstr;

using Gradient = std::vector<float>;

constexpr ronde::AveragerOptions kTell{.missing = ronde::Missing::kError};

float one_more(const ronde::Engine& engine) { return static_cast<float>(engine.rank() + 1); }

TEST(GradientAveragerRebinding, ARankThatHasNothingToGiveSkips) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient weight(10);
    Gradient bias(3);
    ronde::GradientAverager averager(engine, ronde::sum, {}, kTell);
    const auto weight_id = averager.add("weight", std::span(weight));
    const auto bias_id = averager.add("bias", std::span(bias));
    for (int step = 1; step <= 3; ++step) {
      const bool skips = step == 2 && engine.rank() == 1;
      weight.assign(10, skips ? 0.0F : static_cast<float>(step));
      bias.assign(3, skips ? 0.0F : static_cast<float>(step));
      if (skips) {
        averager.skip();
        EXPECT_THAT(thrown_by([&] { averager.ready(bias_id); }), HasSubstr("twice"));
      } else {
        averager.ready(bias_id);
        averager.ready(weight_id);
      }
      averager.wait();
      const auto expected = static_cast<float>(step == 2 ? step : 2 * step);
      EXPECT_THAT(weight, Each(FloatEq(expected))) << "step " << step;
      EXPECT_THAT(bias, Each(FloatEq(expected))) << "step " << step;
    }
  });
}

// The rank that left it out is told, the other one is not, and the step is complete on both.
TEST(GradientAveragerRebinding, TellsTheRankThatLeftSomeOut) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient weight(10, 1.0F);
    Gradient bias(3, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum, {}, kTell);
    const auto weight_id = averager.add("weight", std::span(weight));
    const auto bias_id = averager.add("bias", std::span(bias));
    averager.ready(weight_id);
    if (engine.rank() == 0) averager.ready(bias_id);
    const std::string told = thrown_by([&] { averager.wait(); });
    if (engine.rank() == 0) {
      EXPECT_THAT(told, ::testing::IsEmpty());
    } else {
      EXPECT_THAT(told, AllOf(HasSubstr("1 of 2"), HasSubstr("rank 1"), HasSubstr("'bias'"),
                              HasSubstr("averager_rebinding_test.cc:"),
                              ::testing::Not(HasSubstr("'weight'"))));
    }
    EXPECT_THAT(weight, Each(FloatEq(2.0F)));
    EXPECT_THAT(bias, Each(FloatEq(2.0F)));
    averager.ready(weight_id);
    averager.ready(bias_id);
    averager.wait();
    EXPECT_THAT(bias, Each(FloatEq(4.0F)));
  });
}

// A gradient that zero_grad(set_to_none) drops gets new memory in each step.
TEST(GradientAveragerRebinding, ASpanHoldsForItsStep) {
  on_ranks(2, [](ronde::Engine& engine) {
    for (const std::size_t bucket : {ronde::GradientAverager::kBucketBytes, std::size_t{0}}) {
      Gradient registered(10, 1.0F);
      ronde::GradientAverager averager(engine, ronde::sum, {}, bucket);
      const auto id = averager.add("gradient", std::span(registered));
      for (int step = 1; step <= 3; ++step) {
        Gradient moved(10, static_cast<float>(step) * one_more(engine));
        averager.ready(id, std::span(moved));
        averager.wait();
        EXPECT_THAT(moved, Each(FloatEq(static_cast<float>(3 * step))));
      }
      EXPECT_THAT(registered, Each(FloatEq(1.0F))) << "nobody wrote there";
      averager.ready(id);
      averager.wait();
      EXPECT_THAT(registered, Each(FloatEq(2.0F)));
    }
  });
}

// The memory of the last step is gone, and that of add() may be.
TEST(GradientAveragerRebinding, WhatIsLeftOutLaterCountsAsZeros) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient used(4, 1.0F);
    Gradient registered(10, 50.0F);
    Gradient moved(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto used_id = averager.add("used", std::span(used));
    const auto moved_id = averager.add("moved", std::span(registered));
    averager.ready(moved_id, std::span(moved));
    averager.wait();
    for (int step = 0; step < 3; ++step) {
      moved.assign(10, 7.0F);
      averager.ready(used_id);
      if (engine.rank() == 0) averager.ready(moved_id, std::span(moved));
      averager.wait();
      EXPECT_THAT(moved, Each(FloatEq(7.0F))) << "rank 1 gave zeros, and has nothing written";
    }
    averager.skip();
    averager.wait();
    EXPECT_THAT(moved, Each(FloatEq(7.0F)));
    EXPECT_THAT(registered, Each(FloatEq(50.0F)));
  });
}

TEST(GradientAveragerRebinding, ASpanOfAnotherKindIsRefused) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient registered(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto id = averager.add("gradient", std::span(registered));
    Gradient shorter(9);
    std::vector<double> wider(10);
    EXPECT_THAT(thrown_by([&] { averager.ready(id, std::span(shorter)); }),
                AllOf(HasSubstr("'gradient'"), HasSubstr("10 elements of f32"),
                      HasSubstr("9 elements of f32"), HasSubstr("averager_rebinding_test.cc:")));
    EXPECT_THAT(thrown_by([&] { averager.ready(id, std::span(wider)); }),
                HasSubstr("10 elements of f64"));
    EXPECT_THAT(thrown_by([&] { averager.ready(id + 1, std::span(registered)); }),
                HasSubstr("1 gradient"));
    averager.ready(id);
    averager.wait();
    EXPECT_THAT(registered, Each(FloatEq(2.0F))) << "what was refused is not ready";
  });
}

constexpr unsigned kStepsOfSwap = 3;

// Hooks that start nothing before wait() overlap nothing.
TEST(GradientAveragerStatistics, SaysWhatRanBeforeWait) {
  for (const std::size_t bucket : {ronde::GradientAverager::kBucketBytes, std::size_t{0}}) {
    on_ranks(2, [bucket](ronde::Engine& engine) {
      Gradient weight(100, 1.0F);
      Gradient bias(10, 1.0F);
      ronde::GradientAverager averager(engine, ronde::average, {}, bucket);
      const auto weight_id = averager.add("weight", std::span(weight));
      averager.add("bias", std::span(bias));
      EXPECT_EQ(averager.statistics().share_before_wait(), 0.0);
      for (unsigned step = 0; step < kStepsOfSwap; ++step) {
        averager.ready(weight_id);
        engine.barrier_blocking("backward " + std::to_string(step));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // backward goes on
        // Where a thread got no core meanwhile: all ranks submitted the weight before they came to
        // the first barrier, so that it is averaged before they leave another one.
        engine.barrier_blocking("backward goes on " + std::to_string(step));
        averager.wait();
      }
      averager.wait_again();
      const ronde::AveragerStatistics statistics = averager.statistics();
      EXPECT_EQ(statistics.steps, kStepsOfSwap);
      EXPECT_EQ(statistics.tensors, 2U * kStepsOfSwap);
      EXPECT_EQ(statistics.bytes, 440U * kStepsOfSwap);
      EXPECT_GT(statistics.seconds_in_wait, 0.0);
      if (bucket > 0) {
        EXPECT_EQ(statistics.tensors_submitted_before_wait, 0U);
        EXPECT_EQ(statistics.tensors_done_before_wait, 0U);
        EXPECT_EQ(statistics.seconds_before_wait, 0.0);
        EXPECT_EQ(statistics.share_before_wait(), 0.0);
        return;
      }
      EXPECT_EQ(statistics.tensors_submitted_before_wait, kStepsOfSwap) << "bias was left out";
      EXPECT_EQ(statistics.bytes_submitted_before_wait, 400U * kStepsOfSwap);
      EXPECT_EQ(statistics.tensors_done_before_wait, kStepsOfSwap);
      EXPECT_EQ(statistics.bytes_done_before_wait, 400U * kStepsOfSwap);
      EXPECT_GE(statistics.seconds_before_wait, 0.005 * kStepsOfSwap);
      EXPECT_NEAR(statistics.share_before_wait(), 400.0 / 440.0, 1e-9);
    });
  }
}

// Rank 1 comes when rank 0 has called wait(): what rank 0 had submitted is not done by then.
TEST(GradientAveragerStatistics, WhatOtherRanksKeptBackIsNotDone) {
  std::atomic<const ronde::GradientAverager*> waiter{nullptr};
  on_ranks(2, [&waiter](ronde::Engine& engine) {
    Gradient gradient(100, 1.0F);
    ronde::GradientAverager averager(engine, ronde::average, {}, 0);
    const auto id = averager.add("gradient", std::span(gradient));
    if (engine.rank() == 0) {
      averager.ready(id);
      waiter = &averager;
    } else {
      while (waiter == nullptr) std::this_thread::yield();
      while (waiter.load()->statistics().tensors_submitted_before_wait == 0) {
        std::this_thread::yield();
      }
      averager.ready(id);
    }
    averager.wait();
    if (engine.rank() == 0) {
      EXPECT_EQ(averager.statistics().bytes_submitted_before_wait, 400U);
      EXPECT_EQ(averager.statistics().bytes_done_before_wait, 0U);
      EXPECT_EQ(averager.statistics().tensors_done_before_wait, 0U);
    }
  });
}

}  // namespace
