// SPDX-License-Identifier: Apache-2.0
// The tensor table: names taken and released, groups as one unit, the plan's entries.
#include "runtime/tensors/tensor_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ronde::runtime {
namespace {

using base::Code;
using testing::HasSubstr;

constexpr std::int32_t kRank = 1;

LocalTensorPtr tensor(const std::string& name, base::Shape shape = {4},
                      Operation operation = Operation::kAllreduce) {
  auto made = std::make_shared<LocalTensor>();
  made->name = name;
  made->place = "train.cc:" + name;
  made->signature.operation = operation;
  made->signature.shape = std::move(shape);
  made->work = std::make_shared<Work>();
  return made;
}

LocalTensorPtr group(const std::vector<std::string>& members) {
  auto made = tensor("group of " + members.front());
  for (const std::string& member : members) made->signature.members.push_back({member, {2}});
  return made;
}

BindDecision bind_of(const LocalTensor& tensor, std::int32_t entry, std::uint32_t generation) {
  return {entry, generation, tensor.name, {tensor.signature, {}}};
}

TEST(TensorTable, ANameIsTakenUntilItsTensorIsRemoved) {
  TensorTable table(kRank);
  EXPECT_TRUE(table.empty());
  const auto first = tensor("a");
  ASSERT_TRUE(table.insert(first).ok());
  EXPECT_FALSE(table.empty());
  const auto again = table.insert(tensor("a"));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().code(), Code::kDuplicateName);
  EXPECT_EQ(again.status().message(),
            "'a' is already in flight on this rank, submitted at train.cc:a: wait for it, or use "
            "another name");
  table.remove(*first);
  EXPECT_TRUE(table.empty());
  EXPECT_TRUE(table.insert(tensor("a")).ok());
}

TEST(TensorTable, TheNamesOfAGroupAreTakenAndGivenBackTogether) {
  TensorTable table(kRank);
  const auto both = group({"a", "b"});
  ASSERT_TRUE(table.insert(both).ok());
  for (const char* name : {"a", "b"}) {
    const auto again = table.insert(tensor(name));
    ASSERT_FALSE(again.ok()) << name;
    EXPECT_EQ(again.status().code(), Code::kDuplicateName);
    EXPECT_THAT(again.status().message(), HasSubstr("'" + std::string(name) + "'"));
    EXPECT_THAT(again.status().message(), HasSubstr("in flight on this rank in 'group of a'"));
  }
  EXPECT_FALSE(table.insert(group({"c", "b"})).ok());
  EXPECT_TRUE(table.insert(tensor("c")).ok()) << "a group that was refused left nothing behind";
  table.remove(*both);
  EXPECT_TRUE(table.insert(tensor("a")).ok());
  EXPECT_TRUE(table.insert(tensor("b")).ok());
}

TEST(TensorTable, AGroupWithANameInFlightLeavesNothingBehind) {
  TensorTable table(kRank);
  const auto single = tensor("b");
  ASSERT_TRUE(table.insert(single).ok());
  const auto refused = table.insert(group({"a", "b", "c"}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kDuplicateName);
  EXPECT_THAT(refused.status().message(), HasSubstr("'b' is already in flight"));
  EXPECT_TRUE(table.insert(tensor("a")).ok());
  EXPECT_TRUE(table.insert(tensor("c")).ok());
  table.remove(*single);
  EXPECT_TRUE(table.insert(tensor("b")).ok()) << "the group did not take it over";
  EXPECT_EQ(table.remove_all(true).size(), 3U);
}

TEST(TensorTable, ANameTwiceInOneGroupIsRefused) {
  TensorTable table(kRank);
  const auto refused = table.insert(group({"a", "b", "a"}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(), "'a' is twice in one group: give each tensor its own name");
  EXPECT_TRUE(table.empty());
}

// Other ranks may submit 'a' alone while it is in a group here.
TEST(TensorTable, AMemberIsNotATensorOfItsOwn) {
  TensorTable table(kRank);
  const auto both = group({"a", "b"});
  ASSERT_TRUE(table.insert(both).ok());
  EXPECT_EQ(table.remove_waiting("a"), nullptr);
  EXPECT_FALSE(table.claim({{-1, "b", {}}}).ok());
  const auto claimed = table.claim({{-1, "group of a", {}}});
  ASSERT_TRUE(claimed.ok());
  EXPECT_THAT(claimed->tensors, testing::ElementsAre(both));
  EXPECT_EQ(table.remove_waiting("group of a"), nullptr) << "it is in a batch";
}

TEST(TensorTable, RemovingAllGivesAGroupOnce) {
  TensorTable table(kRank);
  ASSERT_TRUE(table.insert(group({"a", "b", "c"})).ok());
  ASSERT_TRUE(table.insert(tensor("d")).ok());
  EXPECT_EQ(table.remove_all(true).size(), 2U);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.oldest(0), base::kNever);
}

TEST(TensorTable, WhatThePlanKnowsIsCountedInAtItsEntry) {
  TensorTable table(kRank);
  ASSERT_TRUE(table.bind(bind_of(*tensor("a"), 3, 7)).ok());
  const auto planned = tensor("a");
  auto ticket = table.insert(planned);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(ticket->entry, 3);
  EXPECT_EQ(ticket->generation, 7U);
  table.remove(*planned);
  const auto changed = tensor("a", {5});
  ticket = table.insert(changed);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(ticket->entry, -1);
  table.remove(*changed);
  table.evict(3);
  EXPECT_EQ(table.insert(tensor("a"))->entry, -1);
}

TEST(TensorTable, AGroupIsPlannedWhileItsMembersStayTheSame) {
  TensorTable table(kRank);
  const auto first = group({"a", "b"});
  ASSERT_TRUE(table.bind(bind_of(*first, 0, 1)).ok());
  EXPECT_EQ(table.insert(first)->entry, 0);
  table.remove(*first);
  const auto other = group({"a", "c"});
  EXPECT_EQ(table.insert(other)->entry, -1);
  table.remove(*other);
  auto longer = group({"a", "b"});
  longer->signature.members[1].shape = {3};
  EXPECT_EQ(table.insert(longer)->entry, -1);
}

TEST(TensorTable, AnAllToAllIsPlannedWhateverItsRows) {
  TensorTable table(kRank);
  ASSERT_TRUE(table.bind(bind_of(*tensor("x", {0, 3}, Operation::kAllToAll), 2, 1)).ok());
  for (const std::int64_t rows : {0, 5, 77}) {
    const auto exchanged = tensor("x", {rows, 3}, Operation::kAllToAll);
    EXPECT_EQ(table.insert(exchanged)->entry, 2) << rows;
    table.remove(*exchanged);
  }
  EXPECT_EQ(table.insert(tensor("x", {5, 4}, Operation::kAllToAll))->entry, -1);
}

TEST(TensorTable, AnAllgatherIsPlannedWhileThisRanksRowsStay) {
  TensorTable table(kRank);
  BindDecision bind = bind_of(*tensor("g", {2, 3}, Operation::kAllgather), 2, 1);
  bind.tensor.first_dimensions = {2, 9};
  ASSERT_TRUE(table.bind(bind).ok());
  const auto mine = tensor("g", {9, 3}, Operation::kAllgather);
  EXPECT_EQ(table.insert(mine)->entry, 2);
  table.remove(*mine);
  EXPECT_EQ(table.insert(tensor("g", {2, 3}, Operation::kAllgather))->entry, -1);
}

std::vector<std::string> names_of(const std::vector<LocalTensorPtr>& tensors) {
  std::vector<std::string> names;
  for (const LocalTensorPtr& each : tensors) names.push_back(each->name);
  return names;
}

LocalTensorPtr submitted_at(std::int64_t second, const std::string& name) {
  auto made = tensor(name);
  made->submitted = base::Instant(std::chrono::seconds(second));
  return made;
}

// A tensor that is late pins none of those that were submitted after it and have ended.
TEST(TensorTable, R6AnEndedTensorIsReleasedWhateverIsPendingBeforeIt) {
  TensorTable table(kRank);
  ASSERT_TRUE(table.insert(submitted_at(1, "late")).ok());
  for (int i = 0; i < 10'000; ++i) {
    auto other = submitted_at(2, "other " + std::to_string(i));
    ASSERT_TRUE(table.insert(other).ok());
    if (i % 2 == 0) {
      table.remove(*other);
    } else {
      ASSERT_EQ(table.remove_waiting(other->name), other);
    }
    const std::weak_ptr<LocalTensor> observed = other;
    other.reset();
    ASSERT_TRUE(observed.expired()) << i;
  }
  ASSERT_TRUE(table.insert(submitted_at(3, "last")).ok());
  EXPECT_THAT(names_of(table.overdue(base::Instant(std::chrono::seconds(3)), 0)),
              testing::ElementsAre("late", "last"));
}

TEST(TensorTable, TheOrderOfSubmissionHoldsWhateverIsRemoved) {
  for (int removed = 0; removed < 1 << 4; ++removed) {
    TensorTable table(kRank);
    std::vector<LocalTensorPtr> all;
    for (int i = 0; i < 4; ++i) {
      all.push_back(submitted_at(i + 1, std::string(1, static_cast<char>('a' + i))));
      ASSERT_TRUE(table.insert(all.back()).ok());
    }
    // The first has been reported already, and only to one queue.
    ASSERT_EQ(table.overdue(base::Instant(std::chrono::seconds(1)), 0).size(), 1U);
    std::vector<std::string> left;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((removed >> i & 1) != 0) {
        table.remove(*all[i]);
      } else {
        left.push_back(all[i]->name);
      }
    }
    const base::Instant oldest =
        left.empty() ? base::kNever : base::Instant(std::chrono::seconds(left[0][0] - 'a' + 1));
    EXPECT_EQ(table.oldest(1), oldest) << removed;
    EXPECT_EQ(names_of(table.overdue(base::kNever, 1)), left) << removed;
    EXPECT_EQ(table.oldest(1), base::kNever);
    std::erase(left, "a");
    EXPECT_EQ(names_of(table.overdue(base::kNever, 0)), left) << removed;
    // What was taken out of the queues is still in flight.
    for (const LocalTensorPtr& each : all) table.remove(*each);
    EXPECT_TRUE(table.empty());
  }
}

TEST(TensorTable, AShutTableTakesNothing) {
  TensorTable table(kRank);
  table.shut(base::Status::error(Code::kClosed, "closed"));
  table.shut(base::Status::error(Code::kInternal, "later"));
  EXPECT_EQ(table.insert(tensor("a")).status().code(), Code::kClosed);
}

}  // namespace
}  // namespace ronde::runtime
