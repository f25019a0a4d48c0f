// SPDX-License-Identifier: Apache-2.0
// Operations that need no kernels: what dropout draws, and what is refused. Results and gradients
// are compared with PyTorch's (test/python/core).
#include "bindings/trainer/tensor/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "test/unit/trainer/tensor/numbers.h"

namespace ronde::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Shaping, OfNoSamplesIsZero) {
  Tape tape;
  const Tensor none = tape.variable({0, 3}, {});
  EXPECT_EQ(mean(none).item(), 0.0F);
  EXPECT_THAT(mean(none, 0).values(), ElementsAre(0, 0, 0));
  tape.backward(sum(mean(none, 0)));
  EXPECT_TRUE(tape.gradient(none).empty());
}

TEST(Dropout, DependsOnSampleEpochSeedAndLayerAlone) {
  Tape tape;
  const std::vector<float> ones(400, 1.0F);
  const auto drop = [&](std::vector<std::uint32_t> samples, std::uint64_t epoch, std::uint64_t seed,
                        const char* layer) {
    tape.begin({.seed = seed, .epoch = epoch, .samples = samples});
    const std::size_t count = samples.size();
    const Tensor kept =
        dropout(tape.constant({count, 100}, std::span(ones).first(100 * count)), 0.25, layer);
    return std::vector<float>(kept.values().begin(), kept.values().end());
  };
  const std::vector<float> both = drop({7, 9}, 1, 2, "a");
  const std::vector<float> second = drop({9}, 1, 2, "a");
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + 100));
  EXPECT_NE(drop({9}, 2, 2, "a"), second);
  EXPECT_NE(drop({9}, 1, 3, "a"), second);
  EXPECT_NE(drop({9}, 1, 2, "b"), second);
  EXPECT_NE(drop({8}, 1, 2, "a"), second);
  const std::vector<float> many = drop({0, 1, 2, 3}, 0, 0, "a");
  EXPECT_NEAR(static_cast<double>(std::ranges::count(many, 0.0F)) / 400.0, 0.25, 0.08);
  EXPECT_THAT(many, testing::Each(testing::AnyOf(0.0F, testing::FloatEq(4.0F / 3.0F))));
}

TEST(Dropout, DrawsAnewWhenASampleComesAgainAndWhenALayerIsCalledAgain) {
  Tape tape;
  const std::vector<std::uint32_t> samples{7, 9};
  const std::vector<float> ones(200, 1.0F);
  // The masks of two calls in one pass.
  const auto drop = [&](std::vector<std::uint32_t> repetitions) {
    tape.begin({.epoch = 1, .samples = samples, .repetitions = repetitions});
    std::vector<float> masks;
    for (int call = 0; call < 2; ++call) {
      const Tensor kept = dropout(tape.constant({2, 100}, ones), 0.5, "a");
      masks.insert(masks.end(), kept.values().begin(), kept.values().end());
    }
    return masks;
  };
  const auto part = [](const std::vector<float>& masks, std::size_t number) {
    return std::vector<float>(masks.begin() + static_cast<std::ptrdiff_t>(number) * 100,
                              masks.begin() + static_cast<std::ptrdiff_t>(number + 1) * 100);
  };
  const std::vector<float> once = drop({});
  EXPECT_EQ(drop({}), once);
  EXPECT_EQ(drop({0, 0}), once);
  EXPECT_NE(part(once, 2), part(once, 0));  // the second call
  const std::vector<float> again = drop({0, 1});
  EXPECT_EQ(part(again, 0), part(once, 0));
  EXPECT_NE(part(again, 1), part(once, 1));
  EXPECT_NE(part(again, 3), part(once, 3));
  EXPECT_NE(part(again, 3), part(again, 1));
  EXPECT_NE(part(drop({0, 2}), 1), part(again, 1));
  EXPECT_THAT(refusal([&] { (void)drop({1}); }), HasSubstr("1 repetitions for 2 samples"));
}

TEST(Dropout, NeedsToKnowTheEpoch) {
  Tape tape;
  const std::vector<std::uint32_t> samples{7, 9};
  tape.begin({.samples = samples});
  const Tensor x = tape.constant({2, 1}, std::array{1.F, 2.F});
  EXPECT_THAT(refusal([&] { (void)dropout(x, 0.5, "drop1"); }),
              HasSubstr("dropout of drop1: each pass would drop the same: give an epoch"));
}

TEST(Dropout, RestsInEvaluation) {
  Tape tape;
  tape.begin({.training = false, .samples = {}});
  const Tensor x = tape.constant({2}, std::array{1.F, 2.F});
  EXPECT_THAT(dropout(x, 0.5, "layer").values(), ElementsAre(1, 2));
}

TEST(Operations, RefuseWhatDoesNotFit) {
  Tape tape;
  Parameter weight("fc1/weight", {4, 2});
  const Tensor a = tape.constant({2, 3}, numbers({2, 3}, 1));
  EXPECT_THAT(refusal([&] { (void)(a + tape.use(weight)); }),
              HasSubstr("add: 2 x 3 does not fit fc1/weight (4 x 2)"));
  EXPECT_THAT(refusal([&] { (void)reshape(a, {4}); }), HasSubstr("2 x 3 has no 4 elements"));
  EXPECT_THAT(refusal([&] { (void)sum(a, 2); }), HasSubstr("has no side 2"));
  EXPECT_THAT(refusal([&] { (void)concat(std::array{a, tape.use(weight)}, 0); }),
              HasSubstr("fc1/weight (4 x 2)"));
  EXPECT_THAT(refusal([&] { (void)dropout(a, 1.0, "d"); }), HasSubstr("from 0 to below 1"));
  EXPECT_THAT(refusal([&] { (void)dropout(a, 0.5, "d"); }), HasSubstr("for 0 samples"));
  EXPECT_THAT(refusal([&] { (void)a.item(); }), HasSubstr("is no single number"));
  Tape other;
  EXPECT_THAT(refusal([&] { (void)(a + other.constant({}, std::array{1.F})); }),
              HasSubstr("different tapes"));
}

}  // namespace
}  // namespace ronde::trainer
