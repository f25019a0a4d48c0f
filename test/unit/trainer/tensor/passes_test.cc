// SPDX-License-Identifier: Apache-2.0
// What belongs to a pass of the tape, and ends with it: tensors, gradients, values of parameters,
// memory; and what a pass says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "bindings/trainer/nn/batch_norm.h"
#include "test/unit/trainer/tensor/layouts.h"
#include "test/unit/trainer/tensor/own_layouts.h"

namespace ronde::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// A step with a pass that uses some of the parameters.
void step(Tape& tape, const std::vector<Parameter*>& all, const std::vector<Parameter*>& used) {
  for (Parameter* const parameter : all) parameter->begin_step();
  tape.begin();
  Tensor total = tape.variable({}, std::array{1.F});
  for (Parameter* const parameter : used) total = total + sum(tape.use(*parameter) * 2.0F);
  tape.backward(total);
}

TEST(Gradients, OfAParameterThatThePassHasNotUsedAreZeros) {
  Parameter always("always", {3});
  Parameter once("once", {3});
  const std::vector<Parameter*> all{&always, &once};
  const std::span<const float> memory = once.gradient();  // as an averager has it
  Tape tape;
  step(tape, all, all);
  EXPECT_THAT(memory, Each(2.0F));
  step(tape, all, {&always});
  EXPECT_FALSE(once.has_gradient());
  EXPECT_THAT(memory, Each(0.0F));
  step(tape, all, {&once});
  EXPECT_THAT(memory, Each(2.0F));
  EXPECT_THAT(always.gradient(), Each(0.0F));
}

TEST(Gradients, AreZerosThoughASumOfOtherRanksWasThere) {
  Parameter always("always", {3});
  Parameter others("others", {3});
  Tape tape;
  step(tape, {&always, &others}, {&always});
  for (int round = 0; round < 3; ++round) {
    std::ranges::fill(others.gradient(), 8.0F);  // what an averager writes: the sum over ranks
    step(tape, {&always, &others}, {&always});
    EXPECT_THAT(others.gradient(), Each(0.0F));
  }
}

TEST(Gradients, OfAnEarlierMicroBatchStay) {
  Parameter first("first", {2});
  Parameter second("second", {2});
  Tape tape;
  step(tape, {&first, &second}, {&first, &second});
  step(tape, {&first, &second}, {&first});
  tape.begin();
  tape.backward(sum(tape.use(second)));
  EXPECT_THAT(first.gradient(), Each(2.0F));
  EXPECT_THAT(second.gradient(), Each(1.0F));
}

TEST(Gradients, OfAParameterThatIsGoneAreNobodysBusiness) {
  Tape tape;
  Parameter stays("stays", {2});
  {
    Parameter goes("goes", {2});
    step(tape, {&stays, &goes}, {&stays, &goes});
  }
  step(tape, {&stays}, {&stays});  // asan watches
  EXPECT_THAT(stays.gradient(), Each(2.0F));
}

TEST(Gradients, InMemoryThatIsTakenBackAreZeros) {
  Parameter weight("weight", {2});
  Tape tape;
  step(tape, {&weight}, {&weight});
  std::array<float, 2> elsewhere{};
  weight.place_gradient(elsewhere);
  EXPECT_THAT(elsewhere, Each(2.0F));
  weight.take_gradient_back();
  EXPECT_FALSE(weight.has_gradient());
  EXPECT_THAT(weight.gradient(), Each(0.0F));
}

TEST(Tensors, OfAnEarlierPassAreRefused) {
  Parameter kept("kept/weight", {2});
  Parameter weight("fc1/weight", {2});
  Tape tape;
  tape.begin();
  const Tensor stale = tape.use(kept);
  const Tensor sums = relu(stale);
  const Tensor data = tape.constant({2}, std::array{1.F, 2.F});
  const auto refused = [&](const auto& use) { return refusal([&] { (void)use(); }); };
  for (int round = 0; round < 2; ++round) {
    tape.begin();
    const Tensor now = tape.use(weight);
    EXPECT_THAT(refused([&] { return now * stale; }),
                HasSubstr("parameter (2) is a tensor of pass 1"));
    EXPECT_THAT(refused([&] { return stale * now; }), HasSubstr("is a tensor of pass 1"));
    EXPECT_THAT(refused([&] { return relu(sums); }), HasSubstr("relu (2) is a tensor of pass 1"));
    EXPECT_THAT(refused([&] { return now + data; }),
                HasSubstr("constant (2) is a tensor of pass 1"));
    EXPECT_THAT(refused([&] { return data.values(); }), HasSubstr("make it again after begin()"));
    EXPECT_THAT(refused([&] { return tape.gradient(stale); }), HasSubstr("is a tensor of pass 1"));
    EXPECT_THAT(refusal([&] { tape.backward(stale * 1.0F); }), HasSubstr("is a tensor of pass 1"));
    (void)tape.use(kept);
    EXPECT_THAT(refused([&] { return now * stale; }),
                HasSubstr("kept/weight (2) is a tensor of pass 1"));
    tape.backward(sum(now));
    EXPECT_THAT(weight.gradient(), Each(1.0F + static_cast<float>(round)));
  }
}

TEST(Tensors, OfAnotherTapeAreRefused) {
  Parameter weight("weight", {1});
  Tape tape;
  Tape other;
  tape.begin();
  other.begin();
  const Tensor there = other.use(weight);
  const Tensor here = tape.use(weight);
  EXPECT_THAT(refusal([&] { (void)(here + there); }), HasSubstr("different tapes"));
  EXPECT_THAT(refusal([&] { tape.backward(there); }), HasSubstr("lies on another tape"));
  EXPECT_THAT(refusal([&] { (void)tape.gradient(other.variable({}, std::array{1.F})); }),
              HasSubstr("of this tape"));
}

TEST(Tape, GivesTheGradientsThatItKeepsAndNoOthers) {
  Parameter weight("weight", {2});
  Tape tape;
  tape.begin();
  const Tensor x = tape.variable({2}, std::array{3.F, 4.F});
  const Tensor aside = tape.variable({2}, std::array{3.F, 4.F});
  const Tensor used = tape.use(weight);
  const Tensor square = x * x;
  const Tensor loss = sum(square * square + used);
  EXPECT_THAT(refusal([&] { (void)tape.gradient(x); }), HasSubstr("before backward()"));
  tape.backward(loss);
  EXPECT_THAT(tape.gradient(x), ElementsAre(4 * 27, 4 * 64));
  EXPECT_THAT(tape.gradient(aside), ElementsAre(0, 0));
  EXPECT_THAT(refusal([&] { (void)tape.gradient(square); }),
              HasSubstr("the gradient by multiply (2) is not kept"));
  EXPECT_THAT(refusal([&] { (void)tape.gradient(used); }), HasSubstr("read Parameter::gradient()"));
  EXPECT_THAT(refusal([&] { (void)tape.gradient(tape.constant({}, std::array{1.F})); }),
              HasSubstr("is not kept"));
}

TEST(Tape, ReadsATensorOnceHoweverOftenItIsAskedFor) {
  Tape tape;
  tape.begin({.training = false});
  const Tensor images = tape.constant({2, kPadded, 3, 3}, numbers({2, kPadded, 3, 3}, 1));
  const Tensor blocked = in_own_layout(images);
  ASSERT_EQ(blocked.raw().layout != nullptr, has_own_layouts());
  const float* const first = blocked.values().data();
  for (std::size_t i = 0; i < blocked.size(); ++i) {
    ASSERT_EQ(blocked.values().data(), first);
    ASSERT_NEAR(blocked.values()[i], images.values()[i], 1e-6);
  }
  // Numbers of a handle that is gone stay, and two views of the same memory keep their sizes.
  const std::span<const float> result = relu(blocked).values();
  const std::vector<float> copy(result.begin(), result.end());
  (void)relu(images * 2.0F).values();
  EXPECT_TRUE(std::ranges::equal(result, copy));
  const std::vector<float> both{1.F, 2.F};
  EXPECT_EQ(tape.borrow({1}, std::span(both).first(1)).values().size(), 1U);
  EXPECT_THAT(tape.borrow({2}, both).values(), ElementsAre(1, 2));
}

TEST(Tape, LendsTheMemoryOfAGradientOnce) {
  // Both inputs are the same parameter, and the operation fills two rooms before it gives either.
  Parameter weight("weight", {2});
  std::ranges::copy(std::array{0.5F, 2.F}, weight.value().begin());
  const std::vector<float> images = numbers({6, 2}, 1);
  const std::vector<float> factors = numbers({6, 2}, 2);
  Tape tape;
  tape.begin();
  const Tensor x = tape.constant({6, 2}, images);
  const Tensor y = batch_norm(x, tape.use(weight), tape.use(weight), 0.1F).output;
  tape.backward(sum(y * tape.constant({6, 2}, factors)));
  const std::vector<float> together(weight.gradient().begin(), weight.gradient().end());
  tape.begin();
  const Tensor scale = tape.variable({2}, weight.value());
  const Tensor shift = tape.variable({2}, weight.value());
  const Tensor z = batch_norm(tape.constant({6, 2}, images), scale, shift, 0.1F).output;
  tape.backward(sum(z * tape.constant({6, 2}, factors)));
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_FLOAT_EQ(together[i], tape.gradient(scale)[i] + tape.gradient(shift)[i]);
  }
}

TEST(Tape, RefusesAValueThatHasChangedSinceItWasUsed) {
  Parameter weight("fc1/weight", {1});
  weight.value()[0] = 2.0F;
  Tape tape;
  tape.begin();
  const Tensor y = tape.use(weight) * tape.use(weight);
  weight.value()[0] = 100.0F;
  weight.changed();
  EXPECT_THAT(refusal([&] { tape.backward(y); }),
              HasSubstr("fc1/weight has changed since this pass used it"));
  EXPECT_FALSE(weight.has_gradient());
  tape.begin();
  tape.backward(tape.use(weight) * tape.use(weight));
  EXPECT_THAT(weight.gradient(), ElementsAre(200));
}

TEST(Tape, SaysWhichParametersAndStatisticsThePassHasUsed) {
  Parameter first("first", {2});
  Parameter second("second", {2});
  BatchNorm norm("norm", 2);
  Tape tape;
  for (const bool training : {true, false}) {
    tape.begin({.training = training});
    const Tensor x = tape.constant({2, 2}, numbers({2, 2}, 1)) * tape.use(second);
    (void)norm(x * tape.use(first) * tape.use(second));
    (void)norm(x);
    EXPECT_THAT(tape.used_parameters(),
                ElementsAre(&second, &first, norm.parameters()[0], norm.parameters()[1]));
    const std::vector<StateTensor> statistics = tape.used_statistics();
    ASSERT_EQ(statistics.size(), 2U);
    EXPECT_EQ(statistics[0].name, "norm/mean");
    EXPECT_EQ(statistics[1].name, "norm/variance");
    EXPECT_EQ(statistics[1].values.data(), norm.statistics()[1].values.data());
  }
  tape.begin();
  EXPECT_TRUE(tape.used_parameters().empty());
  EXPECT_TRUE(tape.used_statistics().empty());
}

TEST(Memory, OfSimilarSizesIsShared) {
  MemoryPool pool;
  const float* const first = Values::make(pool, {1000}).data();
  EXPECT_EQ(Values::make(pool, {1010}).data(), first);
  EXPECT_EQ(Values::make(pool, {970}).data(), first);
  const std::size_t held = pool.held();
  EXPECT_GE(held, 1010U);
  EXPECT_LE(held, 1010U * 9 / 8);
}

TEST(Memory, ThatTwoPassesHaveNotUsedGoesBackToTheSystem) {
  MemoryPool pool;
  (void)Values::make(pool, {5000});
  for (int pass = 0; pass < 2; ++pass) {
    pool.begin_pass();
    EXPECT_GE(pool.held(), 5000U);
    (void)Values::make(pool, {16});
  }
  pool.begin_pass();
  EXPECT_EQ(pool.held(), 16U);
  // What is used stays.
  for (int pass = 0; pass < 5; ++pass) {
    (void)Values::make(pool, {16});
    pool.begin_pass();
    EXPECT_EQ(pool.held(), 16U);
  }
}

// What the tape holds after batches of these sizes, in floats.
std::size_t held_after(std::size_t first, std::size_t last) {
  Parameter weights("weights", {8, 1, 3, 3});
  Parameter bias("bias", {8});
  Tape tape;
  for (std::size_t samples = first; samples <= last; ++samples) {
    tape.begin();
    const Tensor images = tape.constant({samples, 1, 8, 8}, numbers({samples, 1, 8, 8}, 1));
    const Tensor deep =
        convolution(images, tape.use(weights), tape.use(bias), {{3, 3}, {1, 1}, {1, 1}});
    tape.backward(sum(sigmoid(max_pool(relu(deep), {{2, 2}, {2, 2}, {0, 0}}))));
  }
  tape.begin();
  return tape.pool().held();
}

TEST(Memory, OfBatchesOfManySizesIsNotMuchMoreThanThatOfOne) {
  EXPECT_LE(held_after(1, 100), held_after(100, 100) * 3 / 2);
}

}  // namespace
}  // namespace ronde::trainer
