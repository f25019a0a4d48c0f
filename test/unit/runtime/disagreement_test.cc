// SPDX-License-Identifier: Apache-2.0
// Do the ranks mean the same tensor, and the words for when they do not.
#include "runtime/disagreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Signature sum(base::Shape shape) {
  Signature signature;
  signature.op = base::ReduceOp::kSum;
  signature.shape = std::move(shape);
  return signature;
}

Statement gather(base::Shape shape) {
  Signature signature;
  signature.operation = Operation::kAllgather;
  signature.shape = std::move(shape);
  return {signature, ""};
}

TEST(Disagreement, EqualStatementsBecomeATensor) {
  const auto agreed = agree_on("w", {{sum({2, 3}), "a.cc:1"}, {sum({2, 3}), "b.cc:2"}});
  ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
  EXPECT_TRUE(agreed->signature == sum({2, 3}));
  EXPECT_TRUE(agreed->first_dimensions.empty());
}

TEST(Disagreement, ThePriorityIsTheFirstRanks) {
  std::vector<Statement> statements{{sum({1}), ""}, {sum({1}), ""}};
  statements[0].signature.priority = 5;
  statements[1].signature.priority = 9;
  const auto agreed = agree_on("w", statements);
  ASSERT_TRUE(agreed.ok());
  EXPECT_EQ(agreed->signature.priority, 5);
}

TEST(Disagreement, NamesTheTensorAndGroupsTheRanks) {
  const std::vector<Statement> statements{{sum({128, 784}), "train.cc:40"},
                                          {sum({128, 784}), "train.cc:40"},
                                          {sum({128, 784}), "train.cc:40"},
                                          {sum({128, 785}), "train.cc:41"}};
  const auto agreed = agree_on("fc1/weight", statements);
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.status().code(), base::Code::kMismatch);
  EXPECT_EQ(agreed.status().message(),
            "'fc1/weight': the ranks disagree: ranks 0-2 said allreduce(sum, f32, [128, 784]) at "
            "train.cc:40, rank 3 said allreduce(sum, f32, [128, 785]) at train.cc:41. Make the "
            "calls agree");
}

TEST(Disagreement, GroupsThatAlternateAreListedOnce) {
  const auto agreed = agree_on(
      "w", {{sum({1}), ""}, {sum({2}), ""}, {sum({1}), ""}, {sum({3}), ""}, {sum({2}), ""}});
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.status().message(),
            "'w': the ranks disagree: ranks 0, 2 said allreduce(sum, f32, [1]), ranks 1, 4 said "
            "allreduce(sum, f32, [2]), rank 3 said allreduce(sum, f32, [3]). Make the calls agree");
}

TEST(Disagreement, EveryFieldIsNamed) {
  struct Case {
    std::function<void(Signature&)> change;
    const char* words;
  };
  const std::vector<Case> cases{
      {[](Signature& s) { s.shape = {2}; }, "[2]"},
      {[](Signature& s) { s.dtype = base::DType::kI64; }, "i64"},
      {[](Signature& s) { s.op = base::ReduceOp::kMax; }, "max"},
      {[](Signature& s) { s.operation = Operation::kBarrier; }, "said barrier"},
      {[](Signature& s) { s.prescale = 0.25; }, "prescale 0.25"},
      {[](Signature& s) { s.postscale = 0.25; }, "postscale 0.25"},
      {[](Signature& s) { s.device = 1; }, "device 1"},
  };
  for (const Case& one : cases) {
    std::vector<Statement> statements{{sum({1}), ""}, {sum({1}), ""}};
    one.change(statements[1].signature);
    const auto agreed = agree_on("w", statements);
    ASSERT_FALSE(agreed.ok()) << one.words;
    EXPECT_THAT(agreed.status().message(), HasSubstr(one.words));
  }
  std::vector<Statement> roots{{sum({1}), ""}, {sum({1}), ""}};
  for (Statement& statement : roots) statement.signature.operation = Operation::kBroadcast;
  roots[1].signature.root = 1;
  const auto agreed = agree_on("w", roots);
  ASSERT_FALSE(agreed.ok());
  EXPECT_THAT(agreed.status().message(), HasSubstr("rank 0 said broadcast(root 0, f32, [1])"));
  EXPECT_THAT(agreed.status().message(), HasSubstr("rank 1 said broadcast(root 1, f32, [1])"));
}

TEST(Disagreement, AllgatherKeepsTheRowsOfEveryRank) {
  const auto agreed = agree_on("g", {gather({2, 3}), gather({0, 3}), gather({5, 3})});
  ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
  EXPECT_THAT(agreed->first_dimensions, ElementsAre(2, 0, 5));
}

TEST(Disagreement, AllgatherOfOtherRowsDisagrees) {
  const auto agreed = agree_on("g", {gather({2, 3}), gather({2, 4})});
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.status().code(), base::Code::kMismatch);
}

TEST(Disagreement, AScalarCannotBeGathered) {
  const auto agreed = agree_on("g", {gather({}), gather({})});
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.status().code(), base::Code::kInvalidArgument);
  EXPECT_THAT(agreed.status().message(), HasSubstr("'g'"));
}

TEST(Disagreement, AGatheredTensorThatIsTooLargeIsAnError) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const auto& shapes : {std::vector<base::Shape>{{kMost / 4}, {kMost / 4}},   // too many bytes
                             std::vector<base::Shape>{{kMost}, {kMost}, {kMost}},  // too many rows
                             std::vector<base::Shape>{{kMost / 8, 2}, {kMost / 8, 2}}}) {
    std::vector<Statement> statements;
    for (const base::Shape& shape : shapes) statements.push_back(gather(shape));
    const auto agreed = agree_on("g", statements);
    ASSERT_FALSE(agreed.ok());
    EXPECT_EQ(agreed.status().code(), base::Code::kInvalidArgument);
    EXPECT_THAT(agreed.status().message(), HasSubstr("'g'"));
  }
}

TEST(DisagreementDeathTest, NoRanksIsABug) {
  EXPECT_DEATH((void)agree_on("w", {}), "at least one rank");
}

}  // namespace
}  // namespace ronde::runtime
