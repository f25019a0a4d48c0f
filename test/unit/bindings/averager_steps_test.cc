// SPDX-License-Identifier: Apache-2.0
// GradientAverager: a step is complete on every rank whatever this rank made ready, and mistakes
// are told where they are made.
// Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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

// A branch that rank 1 does not take in step 2. The value says the rank and the step, so an
// average of different steps shows.
TEST(GradientAveragerSteps, WhatWasNotMadeReadyIsAveragedAsItStands) {
  on_ranks(2, [](ronde::Engine& engine) {
    const auto mine = static_cast<float>(engine.rank());
    Gradient weight(10);
    Gradient bias(3);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto weight_id = averager.add("weight", std::span(weight));
    const auto bias_id = averager.add("bias", std::span(bias));
    for (int step = 1; step <= 4; ++step) {
      const auto now = static_cast<float>(step) * 10.0F;
      const bool left_out = step == 2 && engine.rank() == 1;
      weight.assign(10, now + mine);
      bias.assign(3, left_out ? 0.0F : now + mine);
      averager.ready(weight_id);
      if (!left_out) averager.ready(bias_id);
      averager.wait();
      EXPECT_THAT(weight, Each(FloatEq(2 * now + 1))) << "step " << step;
      EXPECT_THAT(bias, Each(FloatEq(step == 2 ? now : 2 * now + 1))) << "step " << step;
    }
  });
}

// Batches of other lengths on every rank and in every step, and a rank without any in step 2.
TEST(GradientAveragerSteps, CountByTheWeightsOfTheirStep) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient weight(10);
    ronde::GradientAverager averager(engine);
    const auto id = averager.add("weight", std::span(weight));
    for (int step = 1; step <= 4; ++step) {
      weight.assign(10, engine.rank() == 0 ? 1.0F : 5.0F);
      averager.weigh(engine.rank() == 0 ? 3.0 : step == 2 ? 0.0 : step);
      averager.ready(id);
      EXPECT_THAT(thrown_by([&] { averager.weigh(1.0); }), HasSubstr("in the middle"));
      averager.wait();
      const auto samples = static_cast<float>(step);
      const float expected = step == 2 ? 1.0F : (3.0F + 5.0F * samples) / (3.0F + samples);
      EXPECT_THAT(weight, Each(FloatEq(expected))) << "step " << step;
    }
    EXPECT_EQ(engine.statistics().full_requests, 1U);
  });
}

// The program of a rank whose loss is no number in step 3, which it leaves out.
struct Steps {
  std::vector<std::string> errors;  // of the steps
  float least = 1.0F;               // of the averages, each by the number that it should be
};

Steps leave_out_a_step(ronde::Engine& engine, bool numbered) {
  Steps outcome;
  Gradient g(100);
  ronde::GradientAverager averager(engine);
  const auto id = averager.add("g", std::span(g));
  for (int step = 1; step <= 10; ++step) {
    if (step == 3 && engine.rank() == 1) continue;
    g.assign(100, static_cast<float>(step));
    const std::string error = thrown_by([&] {
      if (numbered) averager.begin_step(static_cast<std::uint64_t>(step));
      averager.ready(id);
      averager.wait();
    });
    if (!error.empty()) {
      outcome.errors.push_back(error);
      if (numbered) break;
    } else {
      outcome.least = std::min(outcome.least, g[0] / static_cast<float>(step));
    }
  }
  return outcome;
}

TEST(GradientAveragerSteps, AStepThatWasLeftOutIsAnErrorInThatStepWhereStepsHaveNumbers) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Steps outcome = leave_out_a_step(engine, true);
    EXPECT_EQ(outcome.least, 1.0F) << "averages of two steps";
    ASSERT_EQ(outcome.errors.size(), 1U);
    EXPECT_THAT(
        outcome.errors.front(),
        HasSubstr("'g': the ranks are in different steps: rank 0 is in step 3, rank 1 is in "
                  "step 4: rank 1 has left one out"));
  });
}

TEST(GradientAveragerSteps, AStepThatWasLeftOutIsNamedAtTheEndWhereStepsHaveNone) {
  on_ranks(2, [](ronde::Engine& engine) {
    const Steps outcome = leave_out_a_step(engine, false);
    if (engine.rank() == 1) return;
    ASSERT_EQ(outcome.errors.size(), 1U);
    EXPECT_THAT(outcome.errors.front(),
                HasSubstr("rank 1 has taken 9 steps, rank 0 is in its 10th: one was left out"));
  });
}

// The averager has ended on rank 1, and its engine goes on to something else.
TEST(GradientAveragerSteps, AStepThatWasLeftOutIsNamedWhereNamesCrossAfterwards) {
  ::setenv("RONDE_STALL_WARNING_SECONDS", "0.3", 1);
  ::setenv("RONDE_STALL_FAILURE_SECONDS", "1", 1);
  const ronde::LocalJob job(2);
  const auto rank = [&job](int number) {
    ronde::Engine engine(job, number);
    const std::string error = thrown_by([&] {
      (void)leave_out_a_step(engine, false);
      engine.barrier_blocking("after it");
    });
    EXPECT_THAT(error, HasSubstr("of 'g' rank 1 has taken 9 steps, rank 0 is in its 10th"));
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  ::unsetenv("RONDE_STALL_WARNING_SECONDS");
  ::unsetenv("RONDE_STALL_FAILURE_SECONDS");
}

TEST(GradientAveragerSteps, NumbersAddNoMessageToASteadyStep) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient g(10);
    ronde::GradientAverager averager(engine);
    const auto id = averager.add("g", std::span(g));
    std::uint64_t full = 0;
    for (std::uint64_t step = 0; step < 5; ++step) {
      averager.begin_step(step);
      averager.ready(id);
      averager.wait();
      if (step == 0) full = engine.statistics().full_requests;
    }
    EXPECT_EQ(engine.statistics().full_requests, full);
  });
}

TEST(GradientAveragerSteps, AStepIsNumberedBeforeItsFirstGradient) {
  on_ranks(1, [](ronde::Engine& engine) {
    Gradient g(10);
    ronde::GradientAverager averager(engine);
    const auto id = averager.add("g", std::span(g));
    averager.ready(id);
    EXPECT_THAT(thrown_by([&] { averager.begin_step(3); }),
                HasSubstr("begin_step(3) in the middle of a step"));
    averager.wait();
    averager.begin_step(3);
    EXPECT_THAT(thrown_by([&] { averager.begin_step(~std::uint64_t{0}); }),
                HasSubstr("up to 2^62"));
    averager.wait();
  });
}

// Ranks that never make it ready would drift apart.
TEST(GradientAveragerSteps, WhatNoRankMadeReadyIsAveragedToo) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient used(4, 1.0F);
    Gradient forgotten(4, static_cast<float>(engine.rank()));
    ronde::GradientAverager averager(engine);
    const auto id = averager.add("used", std::span(used));
    averager.add("forgotten", std::span(forgotten));
    averager.ready(id);
    averager.wait();
    EXPECT_THAT(forgotten, Each(FloatEq(0.5F)));
  });
}

// Rank 1 has an empty batch in step 2, and does not say so. Its optimiser has set the gradient
// to zeros.
TEST(GradientAveragerSteps, WaitIsAStepAlsoOfARankThatMadeNothingReady) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient gradient(4);
    ronde::GradientAverager averager(engine);
    const auto id = averager.add("gradient", std::span(gradient));
    for (int step = 1; step <= 4; ++step) {
      const auto now = static_cast<float>(step) * 10.0F;
      const bool empty = step == 2 && engine.rank() == 1;
      gradient.assign(4, empty ? 0.0F : now);
      if (!empty) averager.ready(id);
      averager.wait();
      EXPECT_THAT(gradient, Each(FloatEq(step == 2 ? now / 2 : now))) << "step " << step;
    }
    EXPECT_EQ(averager.statistics().steps, 4U);
  });
}

TEST(GradientAveragerSteps, TellsARankThatMadeNothingReady) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient gradient(4, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum, {}, {.missing = ronde::Missing::kError});
    const auto id = averager.add("gradient", std::span(gradient));
    if (engine.rank() == 0) averager.ready(id);
    const std::string told = thrown_by([&] { averager.wait(); });
    EXPECT_EQ(told.find("1 of 1 gradients") != std::string::npos, engine.rank() == 1) << told;
    EXPECT_THAT(gradient, Each(FloatEq(2.0F)));
  });
}

// A rank may do so alone.
TEST(GradientAveragerSteps, WaitAgainIsNoStep) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient gradient(4, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    averager.wait();
    const auto id = averager.add("gradient", std::span(gradient));
    for (const float expected : {2.0F, 4.0F}) {
      averager.ready(id);
      averager.wait();
      if (engine.rank() == 0) averager.wait_again();
      EXPECT_THAT(gradient, Each(FloatEq(expected)));
    }
    EXPECT_EQ(averager.statistics().steps, 2U) << "none before there was a gradient";
  });
}

// A misuse: while an operation of the program has the name not even the gradient's place can be
// taken. The step goes on until it can.
TEST(GradientAveragerSteps, AStepThatCannotBeCompletedGoesOn) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient own(4, 1.0F);
    Gradient gradient(4, 1.0F);
    Gradient other(4, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto id = averager.add("x", std::span(gradient));
    const auto other_id = averager.add("other", std::span(other));
    if (engine.rank() == 0) {
      auto work = engine.allreduce("x", std::span(own), ronde::sum);
      // Rank 1 gives the other one at once, so that wait() ends.
      EXPECT_THAT(thrown_by([&] { averager.wait(); }), HasSubstr("'x'"));
      EXPECT_THAT(thrown_by([&] { averager.ready(id); }), HasSubstr("twice"));
      EXPECT_EQ(averager.statistics().steps, 0U);
      engine.barrier_blocking("rank 0 has been told");
      work.wait();
    } else {
      averager.ready(other_id);
      averager.start();
      engine.barrier_blocking("rank 0 has been told");
      engine.allreduce_blocking("x", std::span(own), ronde::sum);
    }
    averager.wait();
    EXPECT_THAT(gradient, Each(FloatEq(2.0F)));
    EXPECT_THAT(other, Each(FloatEq(2.0F)));
    EXPECT_EQ(averager.statistics().steps, 1U);
  });
}

TEST(GradientAveragerSteps, GoingAwayAveragesNothingThatWasNotMadeReady) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient used(4, 1.0F);
    Gradient rest(4, 1.0F);
    {
      ronde::GradientAverager averager(engine, ronde::sum);
      averager.ready(averager.add("used", std::span(used)));
      averager.add("rest", std::span(rest));
    }
    EXPECT_THAT(used, Each(FloatEq(2.0F)));
    EXPECT_THAT(rest, Each(FloatEq(1.0F)));
  });
}

// Tied weights. The order in which the two are averaged would decide the result.
TEST(GradientAveragerSteps, AddRefusesMemoryThatOverlaps) {
  on_ranks(1, [](ronde::Engine& engine) {
    Gradient tied(10, 1.0F);
    ronde::GradientAverager averager(engine);
    averager.add("wte", std::span(tied));
    for (const auto& again : {std::span(tied), std::span(tied).first(1), std::span(tied).last(1)}) {
      EXPECT_THAT(thrown_by([&] { averager.add("head", again); }),
                  AllOf(HasSubstr("'head'"), HasSubstr("'wte'"), HasSubstr("overlap"),
                        HasSubstr("averager_steps_test.cc:")));
    }
    Gradient halves(10, 1.0F);
    averager.add("left", std::span(halves).first(5));
    averager.add("right", std::span(halves).last(5));
    averager.add("nothing", std::span(halves).first(0));
    averager.add("nothing either", std::span(halves).subspan(2, 0));
  });
}

TEST(GradientAveragerSteps, AddRefusesANameTwice) {
  on_ranks(1, [](ronde::Engine& engine) {
    Gradient one(10, 1.0F);
    Gradient two(10, 2.0F);
    ronde::GradientAverager averager(engine);
    const auto id = averager.add("one", std::span(one));
    EXPECT_THAT(thrown_by([&] { averager.add("one", std::span(two)); }),
                AllOf(HasSubstr("'one'"), HasSubstr("averager_steps_test.cc:")));
    averager.ready(id);
    averager.wait();
    EXPECT_EQ(averager.add("two", std::span(two)), id + 1) << "a refused one takes no id";
  });
}

// An Error, not what a container says of it.
TEST(GradientAveragerSteps, AnUnknownIdIsNamedWithTheCount) {
  on_ranks(1, [](ronde::Engine& engine) {
    Gradient gradient(10, 1.0F);
    ronde::GradientAverager averager(engine);
    EXPECT_THAT(thrown_by([&] { averager.ready(0); }), HasSubstr("none"));
    averager.add("gradient", std::span(gradient));
    EXPECT_THAT(thrown_by([&] { averager.ready(7); }),
                AllOf(HasSubstr("7"), HasSubstr("1 gradient"), ::testing::Not(HasSubstr("_M_"))));
    averager.wait();
    EXPECT_THAT(gradient, Each(FloatEq(1.0F)));
  });
}

}  // namespace
