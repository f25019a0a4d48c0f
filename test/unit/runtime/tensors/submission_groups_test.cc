// SPDX-License-Identifier: Apache-2.0
// Groups of submissions: they become one tensor with several views, or none.
#include "runtime/tensors/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "test/unit/runtime/tensors/submissions.h"

namespace ronde::runtime {
namespace {

using base::Code;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Submission> three() {
  std::vector<Submission> tensors;
  std::ptrdiff_t at = 0;
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, base::Shape>>{{"a", {2, 3}}, {"b", {}}, {"c", {0}}}) {
    Submission tensor = of(Operation::kAllreduce, shape);
    tensor.name = name;
    tensor.place = "train.cc:" + name;
    tensor.views[0].input = tensor.views[0].output = memory() + at;
    at += 512;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Submission grouped(std::vector<Submission> tensors) {
  auto group = group_of(std::move(tensors));
  EXPECT_TRUE(group.ok()) << group.status().message();
  return group.ok() ? *std::move(group) : Submission{};
}

TEST(SubmittedGroup, AGroupIsOneTensorWithSeveralViews) {
  const auto tensor = accepted(grouped(three()));
  EXPECT_EQ(tensor->name, "group of a");
  EXPECT_EQ(tensor->place, "train.cc:a");
  ASSERT_EQ(tensor->views.size(), 3U);
  EXPECT_EQ(tensor->views[0].elements, base::Elements(6));
  EXPECT_EQ(tensor->views[1].elements, base::Elements(1));
  EXPECT_EQ(tensor->views[2].elements, base::Elements(0));
  EXPECT_EQ(tensor->views[1].input, memory() + 512);
  EXPECT_EQ(tensor->signature.shape, base::Shape{7});
  EXPECT_THAT(tensor->signature.members,
              ElementsAre(GroupMember{"a", {2, 3}}, GroupMember{"b", {}}, GroupMember{"c", {0}}));
  EXPECT_EQ(tensor->bytes(), base::Bytes(28));
  EXPECT_EQ(payload_of({tensor->signature, {}}), base::Bytes(28));
}

TEST(SubmittedGroup, OnlyShapesDifferWithinAGroup) {
  const auto refusal = [](auto&& change) {
    std::vector<Submission> tensors = three();
    change(tensors[1].signature);
    const auto group = group_of(std::move(tensors));
    EXPECT_FALSE(group.ok());
    EXPECT_EQ(group.status().code(), Code::kInvalidArgument);
    return group.status().message();
  };
  EXPECT_EQ(refusal([](Signature& s) { s.dtype = base::DType::kF64; }),
            "'b': it is allreduce(sum, f64, []), but 'a', the first of its group, is "
            "allreduce(sum, f32, [2, 3]): only shapes may differ within a group");
  EXPECT_THAT(refusal([](Signature& s) { s.op = base::ReduceOp::kMax; }), HasSubstr("(max"));
  EXPECT_THAT(refusal([](Signature& s) { s.prescale = 2; }), HasSubstr("prescale 2"));
  EXPECT_THAT(refusal([](Signature& s) { s.postscale = 2; }), HasSubstr("postscale 2"));
  EXPECT_THAT(refusal([](Signature& s) { s.compression = base::Compression::kF16; }),
              HasSubstr("compression f16"));
}

TEST(SubmittedGroup, AMemberThatCannotWorkIsNamed) {
  std::vector<Submission> tensors = three();
  tensors[1].views[0].input = nullptr;
  EXPECT_EQ(refused(grouped(tensors)), "'b': the memory is a null pointer");
  tensors = three();
  tensors[0].views[0].output += 4;
  EXPECT_THAT(refused(grouped(tensors)), HasSubstr("'a': input and output overlap partly"));
  tensors = three();
  tensors[2].name.clear();
  EXPECT_THAT(refused(grouped(tensors)), HasSubstr("1 to 4096 bytes"));
  tensors = three();
  tensors[1].signature.shape = {-1};
  EXPECT_THAT(refused(grouped(tensors)), HasSubstr("'b': shape [-1]"));
  tensors = three();
  for (Submission& tensor : tensors) tensor.signature.op = base::ReduceOp::kBitXor;
  EXPECT_THAT(refused(grouped(tensors)), HasSubstr("bxor is not defined for f32"));
}

TEST(SubmittedGroup, AGroupMayNotBeTooLarge) {
  std::vector<Submission> tensors = three();
  tensors[0].signature.shape = {kMost / 8};
  tensors[1].signature.shape = {kMost / 8};
  tensors[2].signature.shape = {kMost / 8};
  tensors[1].signature.dtype = tensors[0].signature.dtype;
  for (Submission& tensor : tensors) tensor.views[0].input = tensor.views[0].output;
  EXPECT_EQ(refused(grouped(tensors)),
            "'group of a': its tensors together are more than 2^63 - 1 bytes");
}

TEST(SubmittedGroup, MembersOfAGroupKeepApart) {
  const auto place = [](Submission& tensor, std::ptrdiff_t input, std::ptrdiff_t output) {
    tensor.signature.shape = {4};
    tensor.views[0].input = memory() + input;
    tensor.views[0].output = memory() + output;
  };
  std::vector<Submission> tensors = three();
  place(tensors[0], 0, 100);
  place(tensors[1], 300, 200);
  // An input may be read twice; an output must not overlap any other memory.
  for (const auto& [input, output, fine] :
       std::vector<std::tuple<std::ptrdiff_t, std::ptrdiff_t, bool>>{{0, 400, true},
                                                                     {8, 400, true},
                                                                     {116, 400, true},
                                                                     {100, 400, false},
                                                                     {115, 400, false},
                                                                     {85, 400, false},
                                                                     {84, 400, true},
                                                                     {500, 100, false},
                                                                     {500, 8, false},
                                                                     {500, 301, false},
                                                                     {500, 316, true},
                                                                     {500, 185, false},
                                                                     {200, 200, false}}) {
    place(tensors[2], input, output);
    if (fine) {
      (void)accepted(grouped(tensors));
    } else {
      EXPECT_THAT(refused(grouped(tensors)), HasSubstr("in the same group: keep them apart"))
          << input << ", " << output;
    }
  }
}

TEST(SubmittedGroup, OnlySomeOperationsHaveGroups) {
  std::vector<Submission> tensors = three();
  for (Submission& tensor : tensors) tensor.signature.operation = Operation::kBroadcast;
  (void)accepted(grouped(tensors));
  for (Submission& tensor : tensors) tensor.signature.operation = Operation::kAllgather;
  const auto checked = check_submission(grouped(tensors), 0, kSize);
  ASSERT_FALSE(checked.ok());
  EXPECT_EQ(checked.status().code(), Code::kUnsupported);
  EXPECT_EQ(checked.status().message(),
            "'group of a': there is no grouped allgather: submit its tensors one by one");
}

}  // namespace
}  // namespace ronde::runtime
