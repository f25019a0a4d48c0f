// SPDX-License-Identifier: Apache-2.0
// How process sets are agreed on, without engines.
#include "runtime/negotiate/set_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ronde::runtime {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SetAgreementTest : public ::testing::Test {
 protected:
  void ask(std::int32_t rank, std::vector<std::int32_t> ranks, std::int64_t memory = 64,
           const std::string& name = "tp") {
    agreement_.on_announcement(rank, {name, std::move(ranks), "x.cc:1", memory, ""}, now_);
  }
  // The only decision, which is of this kind.
  template <typename Kind>
  Kind decided() {
    const std::vector<Decision> decisions = agreement_.take_decisions();
    EXPECT_EQ(decisions.size(), 1U);
    if (decisions.size() != 1 || !std::holds_alternative<Kind>(decisions.front())) {
      ADD_FAILURE() << "another decision";
      return {};
    }
    return std::get<Kind>(decisions.front());
  }

  // Ranks 0 and 1 share a host, and so do 2 and 3.
  const base::JobShape shape_ =
      base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 2, 2}).value();
  SetAgreement agreement_{shape_, seconds(30), seconds(100)};
  base::Instant now_{};
};

TEST_F(SetAgreementTest, ASetIsOpenWhenAllOfItsRanksHaveAsked) {
  ask(3, {0, 1, 3}, 300);
  ask(0, {0, 1, 3}, -1);
  EXPECT_TRUE(agreement_.take_decisions().empty());
  ask(1, {0, 1, 3}, 100);
  const auto open = decided<SetDecision>();
  EXPECT_EQ(open.number, 1);
  EXPECT_THAT(open.ranks, ElementsAre(0, 1, 3));
  EXPECT_THAT(open.memory, ElementsAre(100, 300));
  for (const std::int32_t rank : {0, 1}) agreement_.on_ended(rank, 1);
  EXPECT_TRUE(agreement_.take_decisions().empty());
  ask(2, {2}, 5, "other");
  EXPECT_EQ(decided<SetDecision>().number, 2);
  agreement_.on_ended(3, 1);
  EXPECT_EQ(decided<SetEndedDecision>().number, 1);
  EXPECT_EQ(agreement_.decided(), 3U);
  ask(2, {2}, 5, "third");
  EXPECT_EQ(decided<SetDecision>().number, 1);
}

TEST_F(SetAgreementTest, TheFirstCallOfALateRankIsRefusedEvenIfOthersHaveCalledAgain) {
  ask(0, {0, 1, 2});
  ask(2, {0, 2});
  const auto refused = decided<SetRefusedDecision>();
  EXPECT_THAT(refused.told, ElementsAre(0, 2));
  EXPECT_THAT(refused.text, HasSubstr("rank 0 opened it with ranks 0-2 at x.cc:1, rank 2 with "
                                      "ranks 0, 2 at x.cc:1"));
  ask(0, {0, 1, 2});
  ask(2, {0, 1, 2});
  ask(1, {0, 1, 2});
  EXPECT_THAT(decided<SetRefusedDecision>().told, ElementsAre(1));
  ask(1, {0, 1, 2});
  EXPECT_EQ(decided<SetDecision>().number, 1);
}

TEST_F(SetAgreementTest, WhatIsLateIsReportedOnceAndThenRefused) {
  ask(0, {0, 1});
  EXPECT_EQ(agreement_.due(), now_ + seconds(30));
  agreement_.check(now_ + seconds(29));
  EXPECT_TRUE(agreement_.take_decisions().empty());
  agreement_.check(now_ + seconds(31));
  EXPECT_THAT(decided<NoticeDecision>().text, HasSubstr("'tp' of ranks 0-1 has waited 31 s for "
                                                        "rank 1 to open it"));
  EXPECT_EQ(agreement_.decided(), 0U);  // a notice answers nobody
  EXPECT_EQ(agreement_.due(), now_ + seconds(100));
  agreement_.check(now_ + seconds(99));
  EXPECT_TRUE(agreement_.take_decisions().empty());
  agreement_.check(now_ + seconds(100));
  EXPECT_EQ(decided<SetRefusedDecision>().code, base::Code::kDeadline);
  EXPECT_EQ(agreement_.due(), base::kNever);
}

TEST_F(SetAgreementTest, TheFirstDeadlineOfThoseThatHaveAskedCounts) {
  const auto ask_within = [&](std::int32_t rank, seconds deadline) {
    agreement_.on_announcement(
        rank, {"tp", {0, 1, 2}, "", -1, "", base::Nanoseconds(deadline).count()}, now_);
  };
  ask_within(0, seconds(200));
  EXPECT_EQ(agreement_.due(), now_ + seconds(30));  // the warning
  now_ += seconds(10);
  ask_within(2, seconds(5));
  EXPECT_EQ(agreement_.due(), now_ + seconds(5));
  agreement_.check(now_ + seconds(5));
  const auto refused = decided<SetRefusedDecision>();
  EXPECT_EQ(refused.code, base::Code::kDeadline);
  EXPECT_THAT(refused.told, ElementsAre(0, 2));
  EXPECT_THAT(refused.text, HasSubstr("rank 1 did not open it within 15 s. This is the deadline of "
                                      "the request (deadline_ns)"));
  ask_within(0, seconds(200));
  agreement_.check(now_ + seconds(199));
  EXPECT_TRUE(std::holds_alternative<NoticeDecision>(agreement_.take_decisions().at(0)));
}

TEST_F(SetAgreementTest, WithoutTheLeaderOfAHostNoneIsOpenedOverSeveral) {
  ask(1, {1, 3});
  agreement_.on_closing(2);
  EXPECT_THAT(decided<SetRefusedDecision>().text, HasSubstr("rank 2 has closed its engine"));
  ask(1, {1, 3});
  EXPECT_EQ(decided<SetRefusedDecision>().code, base::Code::kClosed);
  ask(3, {3});
  EXPECT_EQ(decided<SetDecision>().number, 1);
}

TEST_F(SetAgreementTest, ListsThatCannotBeAreRefused) {
  for (const auto& ranks :
       std::vector<std::vector<std::int32_t>>{{}, {1}, {0, 0}, {2, 0}, {0, 4}, {-1, 0}}) {
    ask(0, ranks);
    EXPECT_EQ(decided<SetRefusedDecision>().code, base::Code::kInternal);
  }
}

TEST_F(SetAgreementTest, NumbersEnd) {
  for (std::int32_t i = 1; i <= kMostSets; ++i) {
    ask(0, {0}, 0, std::to_string(i));
    ASSERT_EQ(decided<SetDecision>().number, i);
  }
  ask(0, {0}, 0, "one more");
  EXPECT_EQ(decided<SetRefusedDecision>().code, base::Code::kUnsupported);
}

}  // namespace
}  // namespace ronde::runtime
