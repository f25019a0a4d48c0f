// SPDX-License-Identifier: Apache-2.0
// The tape: when a gradient is final, how micro-batches add up, what is found to be not finite.
#include "bindings/trainer/tensor/tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"

namespace ronde::trainer {
namespace {

using testing::ElementsAre;

void set(Parameter& parameter, float value) { std::ranges::fill(parameter.value(), value); }

TEST(Tape, AnnouncesAGradientWhenItsLastUseIsPassed) {
  Parameter early("early", {2});
  Parameter tied("tied", {2});
  Parameter late("late", {2});
  for (Parameter* const one : {&early, &tied, &late}) set(*one, 2.0F);
  Tape tape;
  tape.begin();
  const Tensor x = tape.constant({2}, std::array{1.F, 3.F});
  Tensor y = x * tape.use(tied);  // the last use, seen from the end
  y = y * tape.use(early);
  y = y * tape.use(tied);
  y = y * tape.use(late);
  std::vector<std::string> order;
  tape.backward(sum(y), [&order](Parameter& parameter) { order.push_back(parameter.name()); });
  EXPECT_THAT(order, ElementsAre("late", "early", "tied"));
  EXPECT_THAT(late.gradient(), ElementsAre(8, 24));
  EXPECT_THAT(early.gradient(), ElementsAre(8, 24));
  EXPECT_THAT(tied.gradient(), ElementsAre(16, 48));
}

TEST(Tape, AnnouncesOnceAndOnlyWhatTheLossDependsOn) {
  Parameter used("used", {1});
  Parameter aside("aside", {1});
  Parameter unused("unused", {1});
  Tape tape;
  tape.begin();
  const Tensor x = tape.use(used) * 3.0F;
  (void)(tape.use(aside) * 2.0F);  // a branch that leads nowhere
  std::vector<std::string> order;
  tape.backward(sum(x), [&order](Parameter& parameter) { order.push_back(parameter.name()); });
  EXPECT_THAT(order, ElementsAre("used"));
  EXPECT_TRUE(used.has_gradient());
  EXPECT_FALSE(aside.has_gradient());
  EXPECT_FALSE(unused.has_gradient());
}

TEST(Tape, AddsWholeGradientsOfMicroBatches) {
  Parameter weight("weight", {2});
  set(weight, 1.0F);
  Tape tape;
  weight.begin_step();
  for (const float input : {1.0F, 10.0F, 100.0F}) {
    tape.begin();
    const Tensor x = tape.constant({}, std::array{input});
    // Two uses: each pass adds up its own gradient before it is added to the others.
    tape.backward(sum(tape.use(weight) * x + tape.use(weight) * x));
  }
  EXPECT_THAT(weight.gradient(), ElementsAre(222, 222));
  weight.begin_step();
  tape.begin();
  tape.backward(sum(tape.use(weight)));
  EXPECT_THAT(weight.gradient(), ElementsAre(1, 1));
}

TEST(Tape, WritesTheGradientWhereItWasPlaced) {
  Parameter weight("weight", {3});
  std::array<float, 3> elsewhere{};
  weight.place_gradient(elsewhere);
  Tape tape;
  tape.begin();
  tape.backward(sum(tape.use(weight) * 4.0F));
  EXPECT_THAT(elsewhere, ElementsAre(4, 4, 4));
  std::array<float, 2> short_memory{};
  EXPECT_THROW(weight.place_gradient(short_memory), TrainerError);
}

TEST(Tape, SharedGradientsAreNotMixedUp) {
  // Both inputs of the sum get the very same gradient; one of them is added to afterwards.
  Parameter a("a", {2});
  Parameter b("b", {2});
  Tape tape;
  tape.begin();
  const Tensor left = tape.use(a);
  const Tensor right = tape.use(b);
  tape.backward(sum(left * 5.0F + (left + right)));
  EXPECT_THAT(a.gradient(), ElementsAre(6, 6));
  EXPECT_THAT(b.gradient(), ElementsAre(1, 1));
}

TEST(Tape, RecordsNothingInEvaluation) {
  Parameter weight("weight", {1});
  Tape tape;
  tape.begin({.training = false, .samples = {}});
  const Tensor y = sum(tape.use(weight) * 2.0F);
  EXPECT_FALSE(y.needs_gradient());
  EXPECT_THROW(tape.backward(y), TrainerError);
}

TEST(Tape, NamesTheFirstOperationThatIsNotFinite) {
  Parameter weight("fc7/weight", {1});
  set(weight, std::numeric_limits<float>::max());
  Tape tape;
  tape.begin();
  const Tensor x = tape.constant({1}, std::array{1.F});
  Tensor y = tape.use(weight) * x;
  EXPECT_EQ(tape.first_not_finite(), "");
  y = tape.use(weight) * (y + x);
  y = y * 2.0F;
  EXPECT_EQ(tape.first_not_finite(), "multiply with fc7/weight");
}

TEST(Tape, GoesBackOverAPassOnce) {
  Parameter weight("weight", {1});
  Tape tape;
  tape.begin();
  const Tensor y = sum(tape.use(weight) * 2.0F);
  tape.backward(y);
  EXPECT_THROW(tape.backward(y), TrainerError);
  tape.begin();
  int announced = 0;
  weight.begin_step();
  tape.backward(tape.use(weight), [&announced](Parameter&) { ++announced; });
  EXPECT_EQ(announced, 1);
  EXPECT_THAT(weight.gradient(), ElementsAre(1));
}

TEST(Tape, BackwardStartsFromOneNumber) {
  Parameter weight("weight", {2});
  Tape tape;
  tape.begin();
  EXPECT_THROW(tape.backward(tape.use(weight) * 2.0F), TrainerError);
  EXPECT_THROW(tape.backward(tape.constant({}, std::array{1.F})), TrainerError);
}

TEST(MemoryPool, GivesTheSameMemoryAgain) {
  MemoryPool pool;
  const float* const first = Values::make(pool, {16}).data();
  EXPECT_EQ(Values::make(pool, {4, 4}).data(), first);
  const Values kept = Values::make(pool, {16});
  EXPECT_NE(Values::make(pool, {16}).data(), kept.data());
  Values outlives;
  {
    MemoryPool gone;
    outlives = Values::make(gone, {8});
  }
  std::ranges::fill(outlives.plain(), 1.0F);  // asan watches
}

}  // namespace
}  // namespace ronde::trainer
