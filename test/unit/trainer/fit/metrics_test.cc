// SPDX-License-Identifier: Apache-2.0
// The area under the ROC curve, against the pairs that it counts.
#include "bindings/trainer/fit/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/trainer/tensor/random.h"
#include "test/unit/trainer/error_of.h"

namespace ronde::trainer {
namespace {

double pairs_in_order(const std::vector<float>& scores, const std::vector<std::int32_t>& labels) {
  double wins = 0.0;
  double pairs = 0.0;
  for (std::size_t one = 0; one < scores.size(); ++one) {
    for (std::size_t other = 0; other < scores.size(); ++other) {
      if (labels[one] != 1 || labels[other] != 0) continue;
      pairs += 1.0;
      wins += scores[one] > scores[other] ? 1.0 : scores[one] == scores[other] ? 0.5 : 0.0;
    }
  }
  return wins / pairs;
}

TEST(AreaUnderCurve, CountsPairsAndHalfOfThoseThatAreEqual) {
  EXPECT_EQ(area_under_curve(std::vector<float>{1, 2, 3, 4}, std::vector<std::int32_t>{0, 0, 1, 1}),
            1.0);
  EXPECT_EQ(area_under_curve(std::vector<float>{4, 3, 2, 1}, std::vector<std::int32_t>{0, 0, 1, 1}),
            0.0);
  EXPECT_EQ(area_under_curve(std::vector<float>{5, 5}, std::vector<std::int32_t>{0, 1}), 0.5);
  EXPECT_EQ(area_under_curve(std::vector<float>{5, 6}, std::vector<std::int32_t>{1, 1}), 0.5);
  Generator random(7, 0);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> scores{0.0F, 1.0F};
    std::vector<std::int32_t> labels{0, 1};
    for (int i = 0; i < 100; ++i) {
      scores.push_back(static_cast<float>(random.below(20)));
      labels.push_back(static_cast<std::int32_t>(random.below(2)));
    }
    EXPECT_NEAR(area_under_curve(scores, labels), pairs_in_order(scores, labels), 1e-12);
  }
}

TEST(AreaUnderCurve, IsAboutTwoClassesWithAScoreEach) {
  EXPECT_THAT(error_of([] {
                (void)area_under_curve(std::vector<float>{1, 2}, std::vector<std::int32_t>{0, 2});
              }),
              testing::HasSubstr("sample 1 has the label 2"));
  EXPECT_THAT(error_of([] {
                (void)area_under_curve(std::vector<float>{1, 2}, std::vector<std::int32_t>{0});
              }),
              testing::HasSubstr("2 scores and 1 labels"));
}

}  // namespace
}  // namespace ronde::trainer
