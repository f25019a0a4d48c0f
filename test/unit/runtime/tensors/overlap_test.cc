// SPDX-License-Identifier: Apache-2.0
// RONDE_CHECK=memory: which tensors may share memory while both are in flight.
#include "runtime/tensors/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {
namespace {

using base::Code;

constexpr std::int32_t kThisRank = 1;
constexpr std::int32_t kTwoRanks = 2;

class Overlap : public ::testing::Test {
 protected:
  // A tensor of f32 that reads `count` elements from `input` on, and writes from `output` on.
  LocalTensorPtr tensor(const std::string& name, Operation operation, std::size_t input,
                        std::size_t output, std::int64_t count) {
    auto made = std::make_shared<LocalTensor>();
    made->name = name;
    made->place = "train.cc:" + name;
    made->signature.operation = operation;
    made->signature.shape = {count};
    made->work = std::make_shared<Work>();
    made->views.push_back({at(input), at(output), base::Elements(count), base::DType::kF32});
    return made;
  }
  LocalTensorPtr in_place(const std::string& name, std::size_t begin, std::int64_t count) {
    return tensor(name, Operation::kAllreduce, begin, begin, count);
  }
  std::byte* at(std::size_t element) { return memory_.data() + element * sizeof(float); }

  static base::Status check(const LocalTensorPtr& a, const LocalTensorPtr& b) {
    return check_apart({a->name, a->place, a->signature, a->views},
                       {b->name, b->place, b->signature, b->views}, kThisRank, kTwoRanks);
  }
  static bool apart(const LocalTensorPtr& a, const LocalTensorPtr& b) {
    const bool forth = check(a, b).ok();
    EXPECT_EQ(forth, check(b, a).ok()) << "whichever is first";
    return forth;
  }

  std::array<std::byte, 1000> memory_{};
};

TEST_F(Overlap, WhatIsWrittenIsTheTensorsOwn) {
  const auto one = in_place("one", 10, 10);
  EXPECT_FALSE(apart(one, in_place("the same", 10, 10)));
  EXPECT_FALSE(apart(one, in_place("its last", 19, 10)));
  EXPECT_FALSE(apart(one, in_place("around it", 0, 100)));
  EXPECT_FALSE(apart(one, in_place("inside it", 12, 1)));
  EXPECT_TRUE(apart(one, in_place("right before it", 0, 10)));
  EXPECT_TRUE(apart(one, in_place("right behind it", 20, 10)));
  EXPECT_TRUE(apart(one, in_place("nothing", 15, 0)));
}

TEST_F(Overlap, SeveralMayReadTheSame) {
  const auto one = tensor("one", Operation::kAllreduce, 0, 100, 10);
  EXPECT_TRUE(apart(one, tensor("two", Operation::kAllreduce, 0, 110, 10)));
  EXPECT_FALSE(apart(one, tensor("its output", Operation::kAllreduce, 100, 120, 10)));
  EXPECT_FALSE(apart(one, in_place("its input", 5, 10)));
  for (const bool gives_memory : {false, true}) {
    const auto gathered = [&](std::size_t input) {
      auto made = tensor("gathered", Operation::kAllgather, input, 85, 10);  // of two ranks
      if (!gives_memory) made->views[0].output = nullptr;
      return made;
    };
    EXPECT_EQ(apart(one, gathered(0)), !gives_memory);
    EXPECT_FALSE(apart(one, gathered(105)));
  }
}

TEST_F(Overlap, ARootOnlyReadsWhatItBroadcasts) {
  const auto from = [&](const std::string& name, std::int32_t root) {
    auto made = tensor(name, Operation::kBroadcast, 0, 0, 10);
    made->signature.root = root;
    return made;
  };
  EXPECT_TRUE(apart(from("one", kThisRank), from("two", kThisRank)));
  EXPECT_FALSE(apart(from("one", kThisRank), from("two", 0)));
}

// Rank 1 of 2 writes 5 of 10 rows.
TEST_F(Overlap, AReduceScatterWritesItsOwnRows) {
  const auto one = tensor("one", Operation::kReduceScatter, 0, 100, 10);
  EXPECT_TRUE(apart(one, in_place("behind its rows", 105, 10)));
  EXPECT_FALSE(apart(one, in_place("its last row", 104, 10)));
}

TEST_F(Overlap, TheErrorNamesTheMemberAndBothPlaces) {
  const auto group = in_place("group of a", 0, 10);
  group->signature.members = {{"a", {10}}, {"b", {10}}};
  group->views.push_back({at(50), at(50), base::Elements(10), base::DType::kF32});
  const auto error = check(group, in_place("late", 55, 10));
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_EQ(error.message(),
            "'late', submitted at train.cc:late: its memory overlaps with that of 'b', submitted "
            "at train.cc:group of a and still in flight, and both are written: keep them apart, "
            "or wait for the earlier one first");
}

TEST_F(Overlap, TheTableChecksWhatIsInFlightIfAsked) {
  for (const bool checks : {false, true}) {
    TensorTable table(kThisRank, kTwoRanks, checks);
    const auto one = in_place("one", 0, 10);
    ASSERT_TRUE(table.insert(one).ok());
    EXPECT_EQ(table.insert(in_place("two", 5, 10)).ok(), !checks);
    EXPECT_TRUE(table.insert(in_place("three", 20, 10)).ok());
    EXPECT_EQ(table.insert(in_place("one", 0, 10)).status().code(), Code::kDuplicateName);
    table.remove(*one);
    EXPECT_TRUE(table.insert(in_place("four", 0, 5)).ok()) << "its memory is free again";
  }
}

}  // namespace
}  // namespace ronde::runtime
