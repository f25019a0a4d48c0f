// SPDX-License-Identifier: Apache-2.0
// Submissions: one that can never work is refused at once, with the tensor's name and what to
// change; any other becomes a tensor with everything that the executor needs.
#include "runtime/tensors/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "test/unit/runtime/tensors/submissions.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Submission, BecomesATensor) {
  Submission submission = of(Operation::kAllreduce, {2, 3});
  submission.place = "train.cc:1";
  submission.signature.root = 3;  // not used
  const auto tensor = accepted(submission);
  EXPECT_EQ(tensor->name, "t");
  EXPECT_EQ(tensor->place, "train.cc:1");
  EXPECT_EQ(tensor->signature.root, 0);
  ASSERT_EQ(tensor->views.size(), 1U);
  EXPECT_EQ(tensor->views[0].elements, base::Elements(6));
  EXPECT_EQ(tensor->views[0].input, submission.views[0].input);
  EXPECT_EQ(tensor->views[0].output, submission.views[0].output);
  EXPECT_EQ(tensor->bytes(), base::Bytes(24));
}

TEST(Submission, ABarrierHasNoMemory) {
  Submission barrier;
  barrier.name = "b";
  barrier.signature.operation = Operation::kBarrier;
  const auto tensor = accepted(barrier);
  EXPECT_THAT(tensor->views, testing::IsEmpty());
  EXPECT_EQ(tensor->bytes(), base::Bytes(0));
}

TEST(Submission, EveryOperationRefusesWhatHasNoSizeOrNoMemory) {
  for (const Operation operation : kWithMemory) {
    EXPECT_THAT(refused(of(operation, {-4})), HasSubstr("negative dimension"));
    EXPECT_THAT(refused(of(operation, {kMost, 4})), HasSubstr("2^63"));
    EXPECT_THAT(refused(of(operation, {kMost})), HasSubstr("2^63 - 1 bytes"));
    Submission missing = of(operation, {4});
    missing.views[0].input = nullptr;
    EXPECT_EQ(refused(missing), "'t': the memory is a null pointer");
    Submission unnamed = of(operation, {4});
    unnamed.name.clear();
    EXPECT_THAT(refused(unnamed), HasSubstr("1 to 4096 bytes"));
    unnamed.name.assign(4097, 'x');
    EXPECT_THAT(refused(unnamed), HasSubstr("1 to 4096 bytes"));
  }
}

TEST(Submission, ZeroElementsNeedNoMemory) {
  for (const Operation operation : kWithMemory) {
    Submission empty = of(operation, {0, 5});
    empty.views[0].input = nullptr;
    empty.views[0].output = nullptr;
    EXPECT_EQ(accepted(empty)->bytes(), base::Bytes(0)) << name_of(operation);
  }
}

TEST(Submission, PartlyOverlappingMemoryIsRefused) {
  for (const Operation operation : {Operation::kAllreduce, Operation::kBroadcast}) {
    Submission submission = of(operation, {4});
    for (const std::ptrdiff_t shift : {-15, -4, 4, 15}) {
      submission.views[0].input = memory() + 100;
      submission.views[0].output = memory() + 100 + shift;
      EXPECT_EQ(refused(submission),
                "'t': input and output overlap partly: make them equal or disjoint");
    }
    for (const std::ptrdiff_t shift : {-16, 0, 16}) {
      submission.views[0].output = memory() + 100 + shift;
      (void)accepted(submission);
    }
  }
}

// The result of an all-to-all belongs to the work, so an output that was given is not used.
TEST(Submission, OutputsOfTheWorkCannotOverlap) {
  Submission submission = of(Operation::kAllToAll, {4});
  for (std::byte* const output : {memory() + 4, static_cast<std::byte*>(nullptr)}) {
    submission.views[0].output = output;
    EXPECT_EQ(accepted(submission)->views[0].output, nullptr);
  }
}

// That of an allgather may lie in memory of the caller, around this rank's rows or apart from them.
TEST(Submission, AnAllgatherMayBeGivenMemoryForItsResult) {
  Submission submission = of(Operation::kAllgather, {4});
  std::byte* const rows = memory() + 200;
  submission.views[0].input = rows;
  for (std::byte* const output : {rows - 2 * 16, rows + 16, rows - kSize * 16}) {
    submission.views[0].output = output;
    EXPECT_EQ(accepted(submission, 2)->views[0].output, output);
  }
  submission.views[0].output = rows;  // of the first rank
  EXPECT_EQ(accepted(submission, 0)->views[0].output, rows);
  for (std::byte* const output : {rows, rows - 4, rows + 4, rows - kSize * 16 + 4}) {
    submission.views[0].output = output;
    EXPECT_THAT(refused(submission, 2), HasSubstr("'t': the input lies in the output, but not at"));
  }
}

TEST(Submission, ArithmeticMustBeDefined) {
  for (const Operation operation : {Operation::kAllreduce, Operation::kReduceScatter}) {
    Submission submission = of(operation, {4});
    submission.signature.op = base::ReduceOp::kBitAnd;
    EXPECT_EQ(refused(submission), "'t': band is not defined for f32");
    submission.signature.dtype = base::DType::kI64;
    (void)accepted(submission);
    submission.signature.dtype = base::DType::kBool;
    (void)accepted(submission);
    submission.signature.op = base::ReduceOp::kSum;
    EXPECT_EQ(refused(submission), "'t': sum is not defined for bool");
    submission.signature.dtype = base::DType::kI32;
    submission.signature.postscale = 2;
    EXPECT_EQ(refused(submission),
              "'t': integers cannot be scaled: leave prescale and postscale at 1");
  }
  Submission sent = of(Operation::kBroadcast, {4});
  sent.signature.op = base::ReduceOp::kBitAnd;  // not used
  (void)accepted(sent);
}

// Two ranks that say 200 would average to 72.
TEST(Submission, AveragesOfNarrowIntegersAreRefused) {
  for (const Operation operation : {Operation::kAllreduce, Operation::kReduceScatter}) {
    for (const base::DTypeRow& row : base::kDTypes) {
      Submission submission = of(operation, {4});
      submission.signature.op = base::ReduceOp::kAverage;
      submission.signature.dtype = row.dtype;
      if (row.kind == base::DTypeKind::kBoolean) continue;
      if (row.kind == base::DTypeKind::kFloating || row.size >= 4) {
        (void)accepted(submission);
        continue;
      }
      EXPECT_EQ(refused(submission),
                "'t': the average of " + std::string(row.name) +
                    " is not defined, since its sum would wrap around: use a sum, or a wider type");
    }
  }
}

TEST(Submission, CompressionIsForFloats) {
  for (const Operation operation : {Operation::kAllreduce, Operation::kReduceScatter}) {
    Submission submission = of(operation, {4});
    submission.signature.compression = base::Compression::kBf16;
    EXPECT_EQ(accepted(submission)->signature.compression, base::Compression::kBf16);
    submission.signature.dtype = base::DType::kF64;
    EXPECT_EQ(refused(submission), "'t': compression bf16 is for f32, not for f64: set it to none");
  }
  Submission gathered = of(Operation::kAllgather, {4});
  gathered.signature.compression = base::Compression::kBf16;  // not used
  EXPECT_EQ(accepted(gathered)->signature.compression, base::Compression::kNone);
}

TEST(Submission, RootsMustBeRanks) {
  Submission submission = of(Operation::kBroadcast, {4});
  submission.signature.root = kSize;
  EXPECT_EQ(refused(submission), "'t': root 4 is no rank of this job: use 0 to 3");
  submission.signature.root = -1;
  EXPECT_THAT(refused(submission), HasSubstr("root -1"));
}

// ---- rows ----

TEST(Submission, AScalarHasNoRows) {
  EXPECT_EQ(refused(of(Operation::kAllgather, {})),
            "'t': a scalar cannot be gathered: give it a first dimension");
  for (const Operation operation : {Operation::kReduceScatter, Operation::kAllToAll}) {
    EXPECT_EQ(refused(of(operation, {})),
              "'t': a scalar cannot be split: give it a first dimension");
  }
}

TEST(Submission, ARowWithoutASizeIsRefusedEvenWhenThereIsNone) {
  for (const Operation operation :
       {Operation::kAllgather, Operation::kReduceScatter, Operation::kAllToAll}) {
    EXPECT_THAT(refused(of(operation, {0, kMost, 2})), HasSubstr("one row: "));
  }
}

TEST(Submission, SplitsAreOnePerRankAndAddUpToTheRows) {
  for (const Operation operation : {Operation::kReduceScatter, Operation::kAllToAll}) {
    Submission submission = of(operation, {6, 2});
    submission.splits = {3, 0, 1, 2};
    const auto tensor = accepted(submission);
    EXPECT_EQ(operation == Operation::kAllToAll ? tensor->splits : tensor->signature.splits,
              submission.splits);
    submission.splits = {3, 3};
    EXPECT_EQ(refused(submission), "'t': splits has 2 numbers for 4 ranks: give one for each");
    submission.splits = {3, 4, -1, 0};
    EXPECT_THAT(refused(submission), HasSubstr("add up to more than the 6 rows"));
    submission.splits = {3, -1, 4, 0};
    EXPECT_EQ(refused(submission), "'t': splits[1] is -1: a number of rows is never negative");
    submission.splits = {1, 1, 1, 1};
    EXPECT_EQ(refused(submission),
              "'t': the splits [1, 1, 1, 1] add up to 4, but the tensor has 6 rows");
    submission.splits = {2, 2, 2, 1};
    EXPECT_EQ(refused(submission),
              "'t': the splits [2, 2, 2, 1] add up to more than the 6 rows of the tensor");
    submission.splits = {kMost, kMost, kMost, kMost};  // their sum would overflow
    EXPECT_THAT(refused(submission), HasSubstr("add up to more than the 6 rows"));
  }
}

TEST(Submission, WithoutSplitsAnAllToAllDealsEvenly) {
  const auto tensor = accepted(of(Operation::kAllToAll, {8, 3}));
  EXPECT_THAT(tensor->splits, ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(accepted(of(Operation::kAllToAll, {0}))->splits, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(refused(of(Operation::kAllToAll, {7})),
            "'t': 7 rows cannot be dealt evenly to 4 ranks: give splits");
}

TEST(Submission, AReduceScatterWritesItsOwnRowsOnly) {
  Submission submission = of(Operation::kReduceScatter, {10, 2});  // 3, 3, 2 and 2 rows of 8 bytes
  EXPECT_EQ(accepted(submission)->views[0].elements, base::Elements(20));
  submission.views[0].input = memory() + 1000;
  const std::array<std::ptrdiff_t, 4> begins{0, 24, 48, 64};
  for (std::int32_t rank = 0; rank < kSize; ++rank) {
    const auto mine = static_cast<std::size_t>(rank);
    for (const std::ptrdiff_t at : {-8, -1, 0, 8, 24, 48, 63, 64, 79}) {
      submission.views[0].output = memory() + 1000 + at;
      if (at == begins[mine]) {
        (void)accepted(submission, rank);
      } else {
        EXPECT_EQ(refused(submission, rank),
                  "'t': the output lies in the input, but not at this rank's rows, " +
                      std::to_string(begins[mine]) +
                      " bytes from its start: put it there, or "
                      "outside")
            << at;
      }
    }
    const std::ptrdiff_t share = rank < 2 ? 24 : 16;
    for (const std::ptrdiff_t at : {-share, std::ptrdiff_t{80}}) {
      submission.views[0].output = memory() + 1000 + at;
      (void)accepted(submission, rank);
    }
  }
}

TEST(Submission, ARankWithoutRowsNeedsNoOutput) {
  Submission submission = of(Operation::kReduceScatter, {2});
  submission.views[0].output = nullptr;
  (void)accepted(submission, 3);
  EXPECT_EQ(refused(submission, 1), "'t': the memory is a null pointer");
}

TEST(Submission, CountsBeyondThirtyTwoBits) {
  constexpr std::int64_t kMany = (std::int64_t{1} << 33) + 8;
  Submission submission = of(Operation::kAllToAll, {kMany});
  submission.splits = {kMany - 3, 1, 1, 1};
  const auto exchanged = accepted(submission);
  EXPECT_EQ(exchanged->splits[0], kMany - 3);
  EXPECT_EQ(exchanged->bytes().value(), kMany * 4);
  submission = of(Operation::kReduceScatter, {kMany});
  // The output begins where the input ends, and one byte before that.
  submission.views[0].input = address(std::uintptr_t{1} << 46);
  submission.views[0].output =
      address((std::uintptr_t{1} << 46) + static_cast<std::uintptr_t>(kMany) * 4);
  EXPECT_EQ(accepted(submission)->views[0].elements.value(), kMany);
  submission.views[0].output -= 1;
  EXPECT_THAT(refused(submission), HasSubstr("not at this rank's rows"));
}

// ---- groups ----

}  // namespace
}  // namespace ronde::runtime
