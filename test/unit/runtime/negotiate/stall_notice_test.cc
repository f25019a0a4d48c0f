// SPDX-License-Identifier: Apache-2.0
// The verdict about late tensors and its words.
#include "runtime/negotiate/stall_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace ronde::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Ranks = std::vector<std::int32_t>;

StalledTensor tensor(const std::string& name, const Ranks& ready, const Ranks& missing,
                     base::Nanoseconds waited = seconds(30)) {
  return {name, waited, ready, missing};
}

std::string notice_of(const std::vector<StalledTensor>& late) {
  return stall_notice(late, judge_stall(late), [](const Ranks& ranks) {
    return " (host of " + std::to_string(ranks.front()) + ")";
  });
}

TEST(StallNotice, OneTensor) {
  EXPECT_EQ(notice_of({tensor("w", {0, 1, 2}, {3})}),
            "'w' has waited 30 s for rank 3 (host of 3), submitted on ranks 0-2");
  EXPECT_EQ(notice_of({tensor("w", {0, 1}, {})}),
            "'w' has waited 30 s: a rank may have stopped in the middle of submitting it");
}

TEST(StallNotice, R9ManyTensorsAreOneNotice) {
  std::vector<StalledTensor> late;
  late.reserve(161);
  for (int i = 0; i < 161; ++i) {
    late.push_back(tensor("layer" + std::to_string(i) + "/weight", {0, 1, 2}, {3}));
  }
  EXPECT_EQ(notice_of(late),
            "'layer0/weight' and 160 more have waited 30 s for rank 3 (host of "
            "3), submitted on ranks 0-2");
}

TEST(StallNotice, TensorsForOtherRanksAreNamedUpToThree) {
  std::vector<StalledTensor> late;
  for (std::int32_t i = 1; i < 6; ++i) late.push_back(tensor("w" + std::to_string(i), {0}, {i}));
  late.push_back(tensor("again", {0}, {1}));
  const std::string text = notice_of(late);
  EXPECT_THAT(text, HasSubstr("'w1' and 1 more have waited 30 s for rank 1 (host of 1), submitted "
                              "on rank 0; 'w2' has waited"));
  EXPECT_THAT(text, HasSubstr("; and 2 more wait for other ranks"));
  EXPECT_THAT(text, Not(HasSubstr("w4")));
}

TEST(StallNotice, TimesThatDifferAreSaid) {
  EXPECT_EQ(late_phrase("w", 1, seconds(30), seconds(30)), "'w' has waited 30 s");
  EXPECT_EQ(late_phrase("w", 2, seconds(31), seconds(30)), "'w' and 1 more have waited 31 s");
  EXPECT_EQ(late_phrase("w", 2, seconds(90), seconds(30)), "'w' and 1 more have waited up to 90 s");
}

TEST(StallNotice, R9CrossedNamesArePointedOut) {
  const std::vector<StalledTensor> late{tensor("a", {0}, {1}), tensor("b", {1}, {0})};
  const StallVerdict verdict = judge_stall(late);
  ASSERT_TRUE(verdict.crossed.has_value());
  EXPECT_THAT(verdict.alike, IsEmpty());
  EXPECT_THAT(notice_of(late), HasSubstr("; the names cross: rank 0 has submitted 'a' and not 'b', "
                                         "rank 1 'b' and not 'a'"));
  // With more ranks, some of which have submitted both, one of each side is enough.
  EXPECT_THAT(notice_of({tensor("a", {0, 2}, {1, 3}), tensor("b", {1, 2}, {0, 3})}),
              HasSubstr("rank 0 has submitted 'a' and not 'b', rank 1 'b' and not 'a'"));
}

TEST(StallNotice, RanksThatAreOnlyLateDoNotCross) {
  for (const auto& late : {std::vector{tensor("a", {0, 1}, {2}), tensor("b", {0}, {1, 2})},
                           std::vector{tensor("a", {0}, {1, 2}), tensor("b", {1}, {0, 2}),
                                       tensor("c", {0, 1}, {2})}}) {
    const bool crossed = judge_stall(late).crossed.has_value();
    EXPECT_EQ(crossed, late.size() == 3) << "only ranks 0 and 1 wait for each other";
  }
}

TEST(StallNotice, R9NearlyEqualNamesArePointedOut) {
  const std::vector<StalledTensor> late{tensor("fc2.weight", {0}, {1}),
                                        tensor("fc1.weight", {0}, {1}),
                                        tensor("fc1.wieght", {1}, {0})};
  const std::string text = notice_of(late);
  EXPECT_THAT(text, HasSubstr("; 'fc1.weight' on rank 0 and 'fc1.wieght' on rank 1 are nearly "
                              "equal: is one misspelt?"));
  EXPECT_THAT(text, Not(HasSubstr("cross"))) << "that is the same, in other words";
  // A rank that has submitted both knows both names.
  const std::vector<StalledTensor> both{tensor("fc1.weight", {0, 2}, {1}),
                                        tensor("fc1.wieght", {1, 2}, {0})};
  EXPECT_THAT(judge_stall(both).alike, IsEmpty());
  EXPECT_TRUE(judge_stall(both).crossed.has_value());
}

TEST(StallNotice, TheWordsDoNotDependOnWhoReportedFirst) {
  const StalledTensor weight = tensor("fc1.weight", {0}, {1});
  const StalledTensor wieght = tensor("fc1.wieght", {1}, {0});
  const StalledTensor bias = tensor("bias", {1}, {0});
  EXPECT_THAT(notice_of({wieght, weight}), HasSubstr("'fc1.weight' on rank 0 and 'fc1.wieght' on"));
  EXPECT_THAT(notice_of({bias, weight}),
              HasSubstr("rank 0 has submitted 'fc1.weight' and not 'bias', rank 1 'bias' and"));
}

TEST(StallNotice, NamesThatAreNearlyEqual) {
  for (const auto& [one, other] : std::vector<std::pair<std::string, std::string>>{
           {"fc1.weight", "fc1.wieght"},
           {"fc1.weight", "fc1.weigt"},
           {"fc1.weight", "fc1.weigght"},
           {"fc1.weight", "fc1/weight"},
           {"Conv.Bias", "conv.bias"},
           {"encoder.attention.weight", "encodr.attention.wieght"}}) {
    EXPECT_TRUE(nearly_equal(one, other)) << one << ' ' << other;
    EXPECT_TRUE(nearly_equal(other, one)) << one << ' ' << other;
  }
  for (const auto& [one, other] : std::vector<std::pair<std::string, std::string>>{
           {"layer1.weight", "layer2.weight"},
           {"layer1.weight", "layer11.weight"},
           {"fc1.weight", "fc1.bias"},
           {"q", "k"},
           {"wq", "wk"},
           {"", "a"},
           {"encoder.attention.weight", "decoder.attention.wieght"}}) {
    EXPECT_FALSE(nearly_equal(one, other)) << one << ' ' << other;
    EXPECT_FALSE(nearly_equal(other, one)) << one << ' ' << other;
  }
}

// What a rank could send must not keep the coordinator for long.
TEST(StallNotice, ManyNamesAndLongOnesAreComparedWithinBounds) {
  std::vector<StalledTensor> late;
  late.reserve(20'000);
  for (std::int32_t i = 0; i < 20'000; ++i) {
    const std::string end = std::string(1, static_cast<char>('a' + i % 26)) + std::string(500, 'x');
    late.push_back(
        tensor(end + "." + std::to_string(i), {i % 100}, {(i + 1) % 100, (i + 50) % 100}));
    std::sort(late.back().missing.begin(), late.back().missing.end());
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(notice_of(late), HasSubstr("more wait for other ranks"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(60));
}

// The worst case: each two groups cross, no two ranks share a name, and every pair of names has to
// be compared letter by letter.
TEST(StallNotice, TheSearchForNearlyEqualNamesIsBounded) {
  constexpr std::int32_t kMany = 16;
  const auto late_with = [](std::int32_t names) {
    std::vector<StalledTensor> late;
    for (std::int32_t i = 0; i < names; ++i) {
      std::string name;
      auto state = static_cast<std::uint32_t>(i + 1);
      for (int letter = 0; letter < 64; ++letter) {
        state = state * 1'664'525U + 1'013'904'223U;
        name += static_cast<char>('a' + state / 65'536U % 26U);
      }
      Ranks missing;
      for (std::int32_t rank = 0; rank < kMany; ++rank) {
        if (rank != i % kMany) missing.push_back(rank);
      }
      late.push_back(tensor(name, {i % kMany}, missing));
    }
    return late;
  };
  EXPECT_EQ(judge_stall(late_with(2 * kMany)).names_paired, 4U * kMany * (kMany - 1) / 2)
      << "few names are all compared";
  const auto late = late_with(1024);
  const auto begin = std::chrono::steady_clock::now();
  const StallVerdict verdict = judge_stall(late);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  EXPECT_EQ(verdict.names_paired, kMostNamesPaired);
  EXPECT_THAT(verdict.alike, IsEmpty());
  EXPECT_TRUE(verdict.crossed.has_value());
}

TEST(StallNotice, GatheringTakesATenthOfTheIntervalAndASecondAtMost) {
  base::Config config;
  config.stall_warning = milliseconds(500);
  EXPECT_EQ(gathering_time(config), milliseconds(50));
  config.stall_warning = seconds(30);
  EXPECT_EQ(gathering_time(config), seconds(1));
}

}  // namespace
}  // namespace ronde::runtime
