// SPDX-License-Identifier: Apache-2.0
// RONDE_CHECK=memory: tensors in flight that share memory, of which one is written. And finite: a
// nan. Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <latch>
#include <string>
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

std::string allreduced_in_c(ronde::Engine& engine, std::vector<float>& data) {
  ronde_error* error = nullptr;
  ronde_allreduce_flat(engine.get(), "x", data.data(), std::ssize(data), RONDE_F32, RONDE_SUM,
                       &error);
  std::string text = error == nullptr ? "" : ronde_error_message(error);
  ronde_error_release(error);
  return text;
}

class MemoryCheck : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("RONDE_CHECK", "memory", 1); }
  void TearDown() override { ::unsetenv("RONDE_CHECK"); }
};

TEST_F(MemoryCheck, RefusesATensorThatOverlapsOneInFlight) {
  std::latch told_so(1);
  on_ranks(2, [&](ronde::Engine& engine) {
    std::vector<float> tied(10, 1.0F);
    if (engine.rank() == 1) {
      told_so.wait();  // until then it is in flight on rank 0
      engine.allreduce("wte", std::span(tied), ronde::sum).wait();
    } else {
      const int line = __LINE__ + 1;
      ronde::Work wte = engine.allreduce("wte", std::span(tied), ronde::sum);
      const std::string told = thrown_by([&] {
        ronde::Work head = engine.allreduce("head", std::span(tied).last(3), ronde::sum);
        told_so.count_down();
        head.wait();
      });
      const std::string place = "memory_check_test.cc:";
      EXPECT_THAT(told, AllOf(HasSubstr("'head'"), HasSubstr("'wte'"), HasSubstr("overlap"),
                              HasSubstr(place + std::to_string(line)),
                              HasSubstr(place + std::to_string(line + 2))));
      if (!told_so.try_wait()) told_so.count_down();
      wte.wait();
    }
    engine.allreduce("head", std::span(tied).last(3), ronde::sum).wait();
    EXPECT_THAT(std::span(tied).first(7), Each(FloatEq(2.0F)));
    EXPECT_THAT(std::span(tied).last(3), Each(FloatEq(4.0F)));
  });
}

// A trainer's steps have nothing that overlaps: the same memory comes again once its work is done.
TEST_F(MemoryCheck, TakesTheSameMemoryStepAfterStep) {
  on_ranks(3, [](ronde::Engine& engine) {
    std::vector<std::vector<float>> gradients(8, std::vector<float>(100));
    ronde::GradientAverager averager(engine, ronde::sum, {}, 1000);
    for (auto& gradient : gradients) {
      averager.add("gradient " + std::to_string(&gradient - gradients.data()), std::span(gradient));
    }
    for (int step = 0; step < 20; ++step) {
      for (std::size_t id = 0; id < gradients.size(); ++id) {
        gradients[id].assign(100, 1.0F);
        averager.ready(id);
      }
      averager.wait();
      for (const auto& gradient : gradients) EXPECT_THAT(gradient, Each(FloatEq(3.0F)));
    }
  });
}

// Ordinary and prepared, in C and in C++: one text on all ranks.
TEST_F(MemoryCheck, OfNumbersSaysTheSameInCAndInCpp) {
  ::setenv("RONDE_CHECK", "finite", 1);
  on_ranks(2, [](ronde::Engine& engine) {
    std::vector<float> data(10, 1.0F);
    ronde::Prepared sum = engine.prepare_allreduce("sum", data, ronde::sum);
    sum.run();
    if (engine.rank() == 1) data[3] = NAN;
    const std::string in_cpp =
        thrown_by([&] { engine.allreduce("x", std::span(data), ronde::sum).wait(); });
    EXPECT_THAT(in_cpp, HasSubstr("'x': rank 1 submitted nan at element 3 of 10 at "));
    const std::string in_c = allreduced_in_c(engine, data);
    const std::string told = "'x': rank 1 submitted nan at element 3 of 10, and RONDE_CHECK=finite";
    EXPECT_THAT(in_c, HasSubstr(told));
    EXPECT_THAT(thrown_by([&] { sum.run(); }), HasSubstr("rank 1 submitted nan at element 3"));
    std::ranges::fill(data, 1.0F);
    sum.run();
    EXPECT_THAT(data, Each(FloatEq(2.0F)));
  });
}

}  // namespace
