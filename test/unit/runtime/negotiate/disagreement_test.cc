// SPDX-License-Identifier: Apache-2.0
// Whether the ranks' statements agree, and the error text for when they do not.
#include "runtime/negotiate/disagreement.h"

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

Statement gather_of(base::Shape shape) {
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
  EXPECT_EQ(
      agreed.status().message(),
      "'fc1/weight': the ranks disagree: ranks 0-2 submitted allreduce(sum, f32, [128, 784]) at "
      "train.cc:40, rank 3 submitted allreduce(sum, f32, [128, 785]) at train.cc:41. Make the "
      "calls agree");
}

TEST(Disagreement, GroupsThatAlternateAreListedOnce) {
  const auto agreed = agree_on(
      "w", {{sum({1}), ""}, {sum({2}), ""}, {sum({1}), ""}, {sum({3}), ""}, {sum({2}), ""}});
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(
      agreed.status().message(),
      "'w': the ranks disagree: ranks 0, 2 submitted allreduce(sum, f32, [1]), ranks 1, 4 "
      "submitted "
      "allreduce(sum, f32, [2]), rank 3 submitted allreduce(sum, f32, [3]). Make the calls agree");
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
      {[](Signature& s) { s.operation = Operation::kBarrier; }, "submitted barrier"},
      {[](Signature& s) { s.prescale = 0.25; }, "prescale 0.25"},
      {[](Signature& s) { s.postscale = 0.25; }, "postscale 0.25"},
      {[](Signature& s) { s.device = 1; }, "on a device"},
      {[](Signature& s) { s.compression = base::Compression::kF16; }, "compression f16"},
      {[](Signature& s) { s.operation = Operation::kAllToAll; }, "submitted all_to_all(f32, [*])"},
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
  EXPECT_THAT(agreed.status().message(), HasSubstr("rank 0 submitted broadcast(root 0, f32, [1])"));
  EXPECT_THAT(agreed.status().message(), HasSubstr("rank 1 submitted broadcast(root 1, f32, [1])"));
}

TEST(Disagreement, AllgatherKeepsTheRowsOfEveryRank) {
  const auto agreed = agree_on("g", {gather_of({2, 3}), gather_of({0, 3}), gather_of({5, 3})});
  ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
  EXPECT_THAT(agreed->first_dimensions, ElementsAre(2, 0, 5));
}

TEST(Disagreement, AllgatherOfOtherRowsDisagrees) {
  const auto agreed = agree_on("g", {gather_of({2, 3}), gather_of({2, 4})});
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(agreed.status().code(), base::Code::kMismatch);
}

// ---- all-to-all and reduce-scatter ----

Statement exchange(base::Shape shape) {
  Statement statement = gather_of(std::move(shape));
  statement.signature.operation = Operation::kAllToAll;
  return statement;
}

TEST(Disagreement, AnAllToAllRemembersNoRows) {
  const auto agreed = agree_on("x", {exchange({2, 3}), exchange({0, 3}), exchange({5, 3})});
  ASSERT_TRUE(agreed.ok()) << agreed.status().to_string();
  EXPECT_TRUE(agreed->first_dimensions.empty());
  EXPECT_EQ(agreed->signature.shape, (base::Shape{0, 3}));
}

TEST(Disagreement, RowsOfAnAllToAllDivideNobody) {
  const auto agreed = agree_on("x", {exchange({2, 3}), exchange({1, 4}), exchange({5, 3})});
  ASSERT_FALSE(agreed.ok());
  EXPECT_EQ(
      agreed.status().message(),
      "'x': the ranks disagree: ranks 0, 2 submitted all_to_all(f32, [*, 3]), rank 1 submitted "
      "all_to_all(f32, [*, 4]). Make the calls agree");
}

TEST(Disagreement, SplitsOfAReduceScatterAreCompared) {
  std::vector<Statement> statements{{sum({6}), ""}, {sum({6}), ""}};
  for (Statement& statement : statements) {
    statement.signature.operation = Operation::kReduceScatter;
    statement.signature.splits = {3, 3};
  }
  ASSERT_TRUE(agree_on("w", statements).ok());
  statements[1].signature.splits = {2, 4};
  EXPECT_EQ(
      agree_on("w", statements).status().message(),
      "'w': the ranks disagree: rank 0 submitted reduce_scatter(sum, f32, [6], splits [3, 3]), "
      "rank 1 submitted reduce_scatter(sum, f32, [6], splits [2, 4]). Make the calls agree");
}

// ---- groups ----

Statement group(std::vector<GroupMember> members) {
  Statement statement{sum({}), ""};
  std::int64_t elements = 0;
  for (const GroupMember& member : members) {
    elements += base::elements_of(member.shape).value().value();
  }
  statement.signature.shape = {elements};
  statement.signature.members = std::move(members);
  return statement;
}

TEST(Disagreement, GroupsThatAreEqualAgree) {
  const Statement said = group({{"a", {2}}, {"b", {3, 4}}});
  const auto agreed = agree_on("group of a", {said, said});
  ASSERT_TRUE(agreed.ok()) << agreed.status().message();
  EXPECT_TRUE(agreed->signature == said.signature);
}

TEST(Disagreement, TheMemberThatDiffersIsNamed) {
  const Statement said = group({{"a", {2}}, {"b", {3, 4}}, {"c", {1}}});
  Statement other = group({{"a", {2}}, {"b", {4, 3}}, {"c", {1}}});
  other.place = "train.cc:7";
  EXPECT_EQ(agree_on("group of a", {said, said, other}).status().message(),
            "'group of a': the ranks disagree about tensor 2 of the group: ranks 0-1 submitted 'b' "
            "[3, 4], rank 2 submitted 'b' [4, 3] at train.cc:7. Make the calls agree");
  EXPECT_EQ(
      agree_on("group of a", {group({{"a", {2}}, {"d", {3, 4}}, {"c", {1}}}), said})
          .status()
          .message(),
      "'group of a': the ranks disagree about tensor 2 of the group: rank 0 submitted 'd' [3, 4], "
      "rank 1 submitted 'b' [3, 4]. Make the calls agree");
  EXPECT_EQ(
      agree_on("group of a", {said, group({{"a", {2}}})}).status().message(),
      "'group of a': the ranks disagree about tensor 2 of the group: rank 0 submitted 'b' [3, 4], "
      "rank 1 submitted nothing: its group has 1 tensor. Make the calls agree");
}

TEST(Disagreement, TheFirstOfAllDifferencesIsTold) {
  const Statement said = group({{"a", {2}}, {"b", {3}}, {"c", {1}}});
  const Statement third = group({{"a", {2}}, {"b", {3}}, {"c", {9}}});
  const Statement second = group({{"a", {2}}, {"x", {3}}, {"c", {1}}});
  EXPECT_THAT(agree_on("group of a", {said, third, second}).status().message(),
              HasSubstr("tensor 2 of the group: ranks 0-1 submitted 'b'"));
  EXPECT_THAT(agree_on("group of a", {said, second, third}).status().message(),
              HasSubstr("tensor 2 of the group: ranks 0, 2 submitted 'b'"));
}

TEST(Disagreement, AGroupAgainstOneTensorOrAnotherOpIsSaidAsSuch) {
  const Statement said = group({{"a", {2}}, {"b", {3}}});
  EXPECT_EQ(
      agree_on("group of a", {said, {sum({5}), ""}}).status().message(),
      "'group of a': the ranks disagree: rank 0 submitted grouped allreduce(sum, f32, 2 tensors, "
      "5 elements), rank 1 submitted allreduce(sum, f32, [5]). Make the calls agree");
  Statement other = said;
  other.signature.op = base::ReduceOp::kMax;
  EXPECT_THAT(agree_on("group of a", {said, other}).status().message(),
              HasSubstr("rank 1 submitted grouped allreduce(max, f32, 2 tensors"));
  other.signature.members[1].name = "c";
  EXPECT_THAT(agree_on("group of a", {said, other}).status().message(),
              HasSubstr("rank 1 submitted grouped allreduce(max, f32, 2 tensors"));
}

TEST(Disagreement, AScalarCannotBeGathered) {
  const auto agreed = agree_on("g", {gather_of({}), gather_of({})});
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
    for (const base::Shape& shape : shapes) statements.push_back(gather_of(shape));
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
