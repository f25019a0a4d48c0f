// SPDX-License-Identifier: Apache-2.0
// Which tensors are packed and where, and what NCCL is asked to do. Values are tested by what comes
// out (engine_test.cc).
#include "collectives/cuda/batch_plan.h"

#include <gmock/gmock.h>

#include <array>

namespace ronde::collectives::cuda {
namespace {

using base::DType;
using base::ReduceOp;

constexpr std::int64_t kLarge = kPackBelow / 4;  // f32

// Tensors at addresses that say which they are; nothing is read.
struct Given {
  explicit Given(ronde_plugin_operation operation, const std::vector<std::int64_t>& lengths) {
    batch.operation = operation;
    batch.dtype = static_cast<std::int32_t>(DType::kF32);
    batch.op = static_cast<std::int32_t>(ReduceOp::kSum);
    batch.prescale = batch.postscale = 1.0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      tensors.push_back({&places[i], &places[i], lengths[i], nullptr});
    }
    batch.tensor_count = static_cast<std::int32_t>(tensors.size());
    batch.tensors = tensors.data();
  }
  [[nodiscard]] BatchPlan plan(const Group& group) {
    const auto layout = layout_of(batch, group);
    EXPECT_TRUE(layout.ok()) << layout.status().message();
    buffer_bytes = layout->buffer_bytes;
    return plan_of(batch, *layout, group, buffer.data());
  }

  std::array<char, 8> places{};
  std::array<std::byte, 1 << 16> buffer{};
  std::int64_t buffer_bytes = 0;
  ronde_plugin_batch batch{};
  std::vector<ronde_plugin_tensor> tensors;
};

TEST(BatchPlan, PacksBelowOneMegabyte) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {3, kLarge, 0, 5, kLarge - 1});
  const BatchPlan plan = given.plan({0, 2});
  ASSERT_EQ(plan.pack.size(), 3U);
  EXPECT_EQ(plan.pack[0].to, given.buffer.data());
  EXPECT_EQ(plan.pack[1].to, given.buffer.data() + 16) << "12 bytes, and a multiple of 16";
  EXPECT_EQ(plan.pack[2].to, given.buffer.data() + 48);
  EXPECT_EQ(plan.unpack[1].from, plan.pack[1].to);
  EXPECT_EQ(plan.unpack[1].to, &given.places[3]);
  ASSERT_EQ(plan.moves.size(), 2U);
  EXPECT_EQ(plan.moves[0].elements, kLarge);
  EXPECT_EQ(plan.moves[0].from, &given.places[1]);
  EXPECT_EQ(plan.moves[1].from, given.buffer.data());
  EXPECT_EQ(plan.moves[1].elements, 12 + kLarge - 1);
  EXPECT_EQ(given.buffer_bytes, 48 + kPackBelow);
}

// What is in the buffer where is agreed on: not a matter of whose rank this is, or of addresses.
TEST(BatchPlan, TheLayoutIsTheSameOnAllRanks) {
  Given given(RONDE_PLUGIN_BROADCAST, {3, 5, kLarge});
  given.batch.root = 1;
  for (const int rank : {0, 1, 2}) {
    given.tensors[0].output = rank == 2 ? &given.places[7] : &given.places[0];
    const BatchPlan plan = given.plan({rank, 3});
    ASSERT_EQ(plan.moves.size(), 2U);
    EXPECT_EQ(plan.moves[1].elements, 16 + 20) << "bytes";
    EXPECT_EQ(plan.moves[1].peer, 1);
    EXPECT_EQ(plan.pack.size(), rank == 1 ? 2U : 0U);
    EXPECT_EQ(plan.unpack.size(), rank == 1 ? 0U : 2U);
  }
}

TEST(BatchPlan, AveragesWithTheDevicesOwnWhereNothingIsScaled) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {kLarge});
  given.batch.op = static_cast<std::int32_t>(ReduceOp::kAverage);
  EXPECT_EQ(given.plan({0, 4}).moves[0].fold, (Fold{ReduceOp::kAverage, 1.0}));
  given.batch.postscale = 3.0;
  EXPECT_EQ(given.plan({0, 4}).moves[0].fold, (Fold{ReduceOp::kSum, 0.75}));
}

TEST(BatchPlan, ScalesWhilePacking) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {3, 5});
  given.batch.op = static_cast<std::int32_t>(ReduceOp::kAverage);
  given.batch.prescale = 0.5;
  const BatchPlan plan = given.plan({0, 4});
  EXPECT_EQ(plan.pack_kind.scale, 0.5);
  EXPECT_EQ(plan.unpack_kind.scale, 0.25);
  EXPECT_EQ(plan.moves[0].fold, Fold{});
}

// The plan of a sum or an average of f16 on so many ranks.
BatchPlan plan_of_f16(Given& given, ReduceOp op, double prescale, double postscale, int ranks) {
  given.batch.dtype = static_cast<std::int32_t>(DType::kF16);
  given.batch.op = static_cast<std::int32_t>(op);
  given.batch.prescale = prescale;
  given.batch.postscale = postscale;
  return given.plan({0, ranks});
}

TEST(BatchPlan, F16IsReducedWhereItLiesIfItsOneFactorIsExact) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {kLarge});
  const auto expect_in_place = [&](ReduceOp op, double prescale, double postscale, int ranks,
                                   Fold fold) {
    const BatchPlan plan = plan_of_f16(given, op, prescale, postscale, ranks);
    EXPECT_TRUE(plan.pack.empty()) << prescale << " " << postscale << " " << ranks;
    EXPECT_EQ(plan.moves.at(0).dtype, DType::kF16);
    EXPECT_EQ(plan.moves.at(0).fold, fold) << prescale << " " << postscale << " " << ranks;
  };
  expect_in_place(ReduceOp::kSum, 1, 1, 3, {ReduceOp::kSum, 1});
  expect_in_place(ReduceOp::kAverage, 1, 1, 4, {ReduceOp::kAverage, 1});
  expect_in_place(ReduceOp::kSum, 0.25, 1, 3, {ReduceOp::kSum, 0.25});
  expect_in_place(ReduceOp::kSum, 0x1p-20, 0x1p20, 3, {ReduceOp::kSum, 1});
  expect_in_place(ReduceOp::kAverage, 0.5, 2, 4, {ReduceOp::kSum, 0.25});
}

// Factors in f16 would be wrong for all elements alike, or make a contribution infinite.
TEST(BatchPlan, F16IsPackedAndSummedInF32Otherwise) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {kLarge});
  const auto expect_packed = [&](ReduceOp op, double prescale, double postscale, int ranks,
                                 double before, double after) {
    const BatchPlan plan = plan_of_f16(given, op, prescale, postscale, ranks);
    ASSERT_EQ(plan.pack.size(), 1U) << prescale << " " << postscale << " " << ranks;
    EXPECT_EQ(plan.pack_kind.to, DType::kF32);
    EXPECT_EQ(plan.unpack_kind.from, DType::kF32);
    EXPECT_EQ(plan.unpack_kind.to, DType::kF16);
    EXPECT_EQ(plan.pack_kind.scale, before) << prescale << " " << postscale << " " << ranks;
    EXPECT_EQ(plan.unpack_kind.scale, after) << prescale << " " << postscale << " " << ranks;
    EXPECT_EQ(plan.moves.at(0).dtype, DType::kF32);
    EXPECT_EQ(plan.moves.at(0).fold, Fold{});
    EXPECT_EQ(given.buffer_bytes, kLarge * 4);
  };
  expect_packed(ReduceOp::kAverage, 1, 1, 3, 1, 1.0 / 3);
  expect_packed(ReduceOp::kSum, 0.1, 10, 2, 0.1, 10);
  expect_packed(ReduceOp::kSum, 3, 1, 2, 3, 1);
  expect_packed(ReduceOp::kSum, 1, 4, 2, 1, 4);
  expect_packed(ReduceOp::kSum, 0x1p-10, 0x1p-10, 2, 0x1p-10, 0x1p-10);
  expect_packed(ReduceOp::kSum, -0.5, 1, 2, -0.5, 1);
  expect_packed(ReduceOp::kAverage, 0.5, 8, 2, 0.5, 4);
}

TEST(BatchPlan, OfTwoF16NoneNeedsToBeRounded) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {3, 5});
  EXPECT_EQ(plan_of_f16(given, ReduceOp::kMax, 1, 1, 2).pack_kind.to, DType::kF16);
  EXPECT_EQ(plan_of_f16(given, ReduceOp::kMax, 2, 1, 2).pack_kind.to, DType::kF32);
  EXPECT_EQ(plan_of_f16(given, ReduceOp::kSum, 1, 1, 2).pack_kind.to, DType::kF32);
}

TEST(BatchPlan, AFactorThatF32DoesNotHaveIsTwo) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {kLarge});
  given.batch.prescale = given.batch.postscale = 1e-25;
  const BatchPlan plan = given.plan({0, 2});
  EXPECT_EQ(plan.pack_kind.scale, 1e-25);
  EXPECT_EQ(plan.unpack_kind.scale, 1e-25);
  given.batch.dtype = static_cast<std::int32_t>(DType::kF64);
  EXPECT_EQ(given.plan({0, 2}).moves.at(0).fold, (Fold{ReduceOp::kSum, 1e-25 * 1e-25}));
}

TEST(BatchPlan, ABarrierHasAtMostOneTensorOfNothing) {
  Given none(RONDE_PLUGIN_BARRIER, {});
  EXPECT_EQ(none.plan({0, 2}).moves.size(), 1U);
  Given one(RONDE_PLUGIN_BARRIER, {0});
  one.tensors[0].input = one.tensors[0].output = nullptr;
  EXPECT_EQ(one.plan({0, 2}).moves.size(), 1U);
  Given full(RONDE_PLUGIN_BARRIER, {7});
  EXPECT_EQ(layout_of(full.batch, {0, 2}).status().message(), "a barrier of 7 elements");
  Given two(RONDE_PLUGIN_BARRIER, {0, 0});
  EXPECT_EQ(layout_of(two.batch, {0, 2}).status().message(), "a batch of 2 tensors, not 1");
}

TEST(BatchPlan, IntegersAreDividedByTheDevice) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {3, 5});
  given.batch.op = static_cast<std::int32_t>(ReduceOp::kAverage);
  given.batch.dtype = static_cast<std::int32_t>(DType::kI32);
  const BatchPlan plan = given.plan({0, 4});
  EXPECT_EQ(plan.unpack_kind.scale, 1.0);
  EXPECT_EQ(plan.moves[0].fold, (Fold{ReduceOp::kAverage, 1.0}));
}

TEST(BatchPlan, CompressesEverything) {
  Given given(RONDE_PLUGIN_ALLREDUCE, {3, kLarge});
  given.batch.compression = static_cast<std::int32_t>(base::Compression::kBf16);
  const BatchPlan plan = given.plan({0, 2});
  EXPECT_EQ(plan.pack.size(), 2U);
  ASSERT_EQ(plan.moves.size(), 1U);
  EXPECT_EQ(plan.moves[0].dtype, DType::kBf16);
  EXPECT_EQ(plan.moves[0].elements, 8 + kLarge);
  EXPECT_EQ(plan.unpack_kind.to, DType::kF32);
}

TEST(BatchPlan, ReduceScatterReducesEachBlockToItsOwner) {
  Given given(RONDE_PLUGIN_REDUCE_SCATTER, {4, 0, 6});
  const BatchPlan plan = given.plan({2, 3});
  ASSERT_EQ(plan.moves.size(), 2U);
  EXPECT_EQ(plan.moves[1].kind, MoveKind::kReduce);
  EXPECT_EQ(plan.moves[1].peer, 2);
  given.batch.compression = static_cast<std::int32_t>(base::Compression::kF16);
  const BatchPlan packed = given.plan({2, 3});
  EXPECT_EQ(packed.pack.size(), 2U);
  ASSERT_EQ(packed.unpack.size(), 1U) << "only what is this rank's";
  EXPECT_EQ(packed.unpack[0].to, &given.places[2]);
  EXPECT_EQ(packed.moves.size(), 2U);
}

TEST(BatchPlan, RefusesAWrongNumberOfBlocks) {
  Given given(RONDE_PLUGIN_ALLGATHER, {4, 4});
  EXPECT_TRUE(layout_of(given.batch, {0, 2}).ok());
  EXPECT_EQ(layout_of(given.batch, {0, 3}).status().message(), "a batch of 2 tensors, not 3");
  given.batch.operation = RONDE_PLUGIN_BROADCAST;
  given.batch.root = 2;
  EXPECT_EQ(layout_of(given.batch, {0, 2}).status().message(),
            "there is no rank 2 to broadcast from");
}

}  // namespace
}  // namespace ronde::collectives::cuda
