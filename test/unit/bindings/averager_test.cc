// SPDX-License-Identifier: Apache-2.0
// GradientAverager: what it holds back and what it starts, and that nothing gets lost on the way.
// Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::on_ranks;
using ronde::testing::thrown_by;
using ::testing::Each;
using ::testing::FloatEq;
using ::testing::HasSubstr;

using Gradient = std::vector<float>;

// How many tensors this rank has submitted.
std::uint64_t submitted(const ronde::Engine& engine) {
  const auto statistics = engine.statistics();
  return statistics.full_requests + statistics.planned_requests;
}

TEST(GradientAverager, HoldsSmallGradientsBackUntilWait) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient weight(300, static_cast<float>(engine.rank()));
    Gradient bias(3, 4.0F);
    ronde::GradientAverager averager(engine);
    const auto weight_id = averager.add("weight", std::span(weight));
    const auto bias_id = averager.add("bias", std::span(bias));
    for (std::uint64_t step = 1; step <= 3; ++step) {
      weight.assign(300, static_cast<float>(engine.rank()));
      averager.ready(weight_id);
      averager.ready(bias_id);
      EXPECT_EQ(submitted(engine), 2 * (step - 1));
      averager.wait();
      EXPECT_EQ(submitted(engine), 2 * step);
      EXPECT_THAT(weight, Each(FloatEq(0.5F)));
      EXPECT_THAT(bias, Each(FloatEq(4.0F)));
    }
  });
}

TEST(GradientAverager, ANameReachesNoTerminal) {
  on_ranks(1, [](ronde::Engine& engine) {
    Gradient gradient(1);
    ronde::GradientAverager averager(engine);
    const std::string name = "a\n\x1b[2J\x7f \xc2\x9b \xc3\x9b \xc2";  // \xc3\x9b is a letter
    averager.add(name, std::span(gradient));
    EXPECT_THAT(thrown_by([&] { averager.add(name, std::span(gradient)); }),
                HasSubstr("'a\\n\\x1b[2J\\x7f \\xc2\\x9b \xc3\x9b \xc2'"));
  });
}

TEST(GradientAverager, StartsABucketThatIsFull) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient one(50, 1.0F);
    Gradient two(50, 2.0F);
    Gradient three(50, 3.0F);
    ronde::GradientAverager averager(engine, ronde::sum, {}, 400);
    const auto first = averager.add("one", std::span(one));
    const auto second = averager.add("two", std::span(two));
    const auto third = averager.add("three", std::span(three));
    averager.ready(first);
    EXPECT_EQ(submitted(engine), 0U) << "200 bytes of 400";
    averager.ready(second);
    EXPECT_EQ(submitted(engine), 2U);
    averager.ready(third);
    EXPECT_EQ(submitted(engine), 2U) << "the next bucket";
    averager.wait();
    EXPECT_THAT(one, Each(FloatEq(2.0F)));
    EXPECT_THAT(two, Each(FloatEq(4.0F)));
    EXPECT_THAT(three, Each(FloatEq(6.0F)));
  });
}

// They go in few batches, and are summed where they lie.
TEST(GradientAverager, GradientsSideBySideOnTheBoardAreNotCopied) {
  on_ranks(2, [](ronde::Engine& engine) {
    constexpr std::size_t kGradients = 4;
    constexpr std::size_t kElements = 20'000;
    std::vector<float, ronde::allocator<float>> all(kGradients * kElements,
                                                    ronde::allocator<float>(engine));
    ronde::AveragerOptions options;
    options.bucket_bytes = all.size() * sizeof(float);
    ronde::GradientAverager averager(engine, ronde::sum, {}, options);
    std::vector<ronde::GradientAverager::Id> ids;
    for (std::size_t i = 0; i < kGradients; ++i) {
      ids.push_back(averager.add("weight " + std::to_string(i),
                                 std::span(all).subspan(i * kElements, kElements)));
    }
    for (int step = 0; step < 3; ++step) {
      const ronde_statistics before = engine.statistics();
      std::fill(all.begin(), all.end(), static_cast<float>(engine.rank() + 1));
      for (const auto id : ids) averager.ready(id);
      averager.wait();
      EXPECT_THAT(all, Each(3.0F));
      const ronde_statistics after = engine.statistics();
      EXPECT_EQ(after.in_place_bytes - before.in_place_bytes, all.size() * sizeof(float));
      EXPECT_LE(after.batches - before.batches, kGradients);
    }
  });
}

TEST(GradientAverager, HoldsNothingBackWithoutABucket) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient gradient(1, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum, {}, 0);
    averager.ready(averager.add("gradient", std::span(gradient)));
    EXPECT_EQ(submitted(engine), 1U);
    averager.wait();
    EXPECT_THAT(gradient, Each(FloatEq(2.0F)));
  });
}

// The ranks hold different ones back.
TEST(GradientAverager, RanksMayFillBucketsInAnotherOrder) {
  on_ranks(3, [](ronde::Engine& engine) {
    std::vector<Gradient> gradients(8, Gradient(64, 1.0F));
    ronde::GradientAverager averager(engine, ronde::sum, {},
                                     static_cast<std::size_t>(engine.rank()) * 512);
    std::vector<ronde::GradientAverager::Id> ids;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      ids.push_back(averager.add("gradient " + std::to_string(i), std::span(gradients[i])));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      averager.ready(ids[engine.rank() == 1 ? ids.size() - 1 - i : i]);
    }
    averager.wait();
    for (const Gradient& gradient : gradients) EXPECT_THAT(gradient, Each(FloatEq(3.0F)));
  });
}

// Held back or started, and even if its average is there already.
TEST(GradientAverager, ReadyTwiceInAStepIsAnError) {
  on_ranks(2, [](ronde::Engine& engine) {
    for (const std::size_t bucket : {std::size_t{1000}, std::size_t{0}}) {
      Gradient gradient(10, 1.0F);
      ronde::GradientAverager averager(engine, ronde::sum, {}, bucket);
      const auto id = averager.add("gradient", std::span(gradient));
      for (int step = 0; step < 2; ++step) {
        gradient.assign(10, 1.0F);
        averager.ready(id);
        EXPECT_THAT(thrown_by([&] { averager.ready(id); }), HasSubstr("'gradient'"));
        averager.wait();
        EXPECT_THAT(gradient, Each(FloatEq(2.0F)));
      }
    }
  });
}

// The ranks wait for two averagers in opposite orders.
TEST(GradientAverager, StartsWhatItHoldsWhenToldTo) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient one(10, 1.0F);
    Gradient two(10, 2.0F);
    ronde::GradientAverager first(engine, ronde::sum);
    ronde::GradientAverager second(engine, ronde::sum);
    first.ready(first.add("one", std::span(one)));
    second.ready(second.add("two", std::span(two)));
    first.start();
    second.start();
    EXPECT_EQ(submitted(engine), 2U);
    (engine.rank() == 0 ? first : second).wait();
    (engine.rank() == 0 ? second : first).wait();
    EXPECT_THAT(one, Each(FloatEq(2.0F)));
    EXPECT_THAT(two, Each(FloatEq(4.0F)));
  });
}

TEST(GradientAverager, ReadyThrowsWhatTheBucketThatItFillsComesTo) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient nameless(10, 1.0F);
    Gradient good(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum, {}, 80);
    const auto bad_id = averager.add("", std::span(nameless));
    const auto good_id = averager.add("good", std::span(good));
    averager.ready(bad_id);
    EXPECT_THAT(thrown_by([&] { averager.ready(good_id); }), HasSubstr("name"));
    averager.wait();
    EXPECT_THAT(good, Each(FloatEq(2.0F))) << "it was started all the same";
  });
}

// How often the background thread wakes up in some steps of small gradients. There is one rank, as
// one that waits long for another, which may get no core, wakes its thread.
std::uint64_t wakes_in(int steps, std::size_t bucket_bytes) {
  std::uint64_t wakes = 0;
  on_ranks(1, [&](ronde::Engine& engine) {
    std::vector<Gradient> gradients(4, Gradient(64));
    ronde::GradientAverager averager(engine, ronde::sum, {}, bucket_bytes);
    std::vector<ronde::GradientAverager::Id> ids;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      ids.push_back(averager.add("gradient " + std::to_string(i), std::span(gradients[i])));
    }
    const std::uint64_t before = engine.statistics().background_wakes;
    for (int step = 0; step < steps; ++step) {
      for (const auto id : ids) averager.ready(id);
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // backward goes on
      averager.wait();
    }
    wakes = engine.statistics().background_wakes - before;
  });
  return wakes;
}

// What the buckets are for.
TEST(GradientAverager, SmallGradientsLeaveTheBackgroundThreadAsleep) {
  constexpr int kSteps = 200;
  EXPECT_LT(wakes_in(kSteps, ronde::GradientAverager::kBucketBytes), kSteps / 20U);
  EXPECT_GT(wakes_in(kSteps, 0), kSteps / 20U);
}

TEST(GradientAverager, ThrowsTheFirstErrorWhenAllAreDone) {
  on_ranks(2, [](ronde::Engine& engine) {
    const auto mine = static_cast<std::size_t>(engine.rank());
    Gradient good(10, 1.0F);
    Gradient bad(10 + mine);
    Gradient worse(20 + mine);
    Gradient last(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    std::vector<ronde::GradientAverager::Id> ids;
    ids.push_back(averager.add("good", std::span(good)));
    ids.push_back(averager.add("bad", std::span(bad)));
    ids.push_back(averager.add("worse", std::span(worse)));
    ids.push_back(averager.add("last", std::span(last)));
    for (const auto id : ids) averager.ready(id);
    EXPECT_THAT(thrown_by([&] { averager.wait(); }), HasSubstr("'bad'"));
    EXPECT_THAT(good, Each(FloatEq(2.0F)));
    EXPECT_THAT(last, Each(FloatEq(2.0F)));
  });
}

// The first that is submitted fails; the other ranks must hear of the second.
TEST(GradientAverager, OneThatIsRefusedKeepsNoOtherBack) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient nameless(10, 1.0F);
    Gradient good(10, 1.0F);
    ronde::GradientAverager averager(engine, ronde::sum);
    const auto bad_id = averager.add("", std::span(nameless));
    const auto good_id = averager.add("good", std::span(good));
    averager.ready(bad_id);
    averager.ready(good_id);
    EXPECT_THAT(thrown_by([&] { averager.wait(); }), HasSubstr("name"));
    EXPECT_THAT(good, Each(FloatEq(2.0F)));
  });
}

TEST(GradientAverager, StartsWhatItHoldsBeforeItGoesAway) {
  on_ranks(2, [](ronde::Engine& engine) {
    Gradient gradient(10, 1.0F);
    {
      ronde::GradientAverager averager(engine, ronde::sum);
      averager.ready(averager.add("gradient", std::span(gradient)));
    }
    EXPECT_THAT(gradient, Each(FloatEq(2.0F)));
  });
}

TEST(GradientAverager, TakesGradientsFromManyThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kEach = 16;
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<Gradient> gradients(kThreads * kEach, Gradient(32));
    ronde::GradientAverager averager(engine, ronde::sum, {}, 1000);
    std::vector<ronde::GradientAverager::Id> ids;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      ids.push_back(averager.add("gradient " + std::to_string(i), std::span(gradients[i])));
    }
    for (int step = 0; step < 5; ++step) {
      for (Gradient& gradient : gradients) gradient.assign(32, 1.0F);
      std::vector<std::thread> threads;
      for (std::size_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&averager, &ids, thread] {
          for (std::size_t i = 0; i < kEach; ++i) averager.ready(ids[thread * kEach + i]);
        });
      }
      for (std::thread& thread : threads) thread.join();
      averager.wait();
      for (const Gradient& gradient : gradients) EXPECT_THAT(gradient, Each(FloatEq(2.0F)));
    }
  });
}

}  // namespace
