// SPDX-License-Identifier: Apache-2.0
// Comparing, describing and counting signatures.
#include "runtime/tensors/signature.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

namespace ronde::runtime {
namespace {

Signature allreduce(base::Shape shape) {
  Signature signature;
  signature.op = base::ReduceOp::kSum;
  signature.shape = std::move(shape);
  return signature;
}

Signature signature_of(Operation operation, base::Shape shape) {
  Signature signature;
  signature.operation = operation;
  signature.shape = std::move(shape);
  return signature;
}

// Changes every field that is compared, each in one place.
std::vector<std::function<void(Signature&)>> changes() {
  return {[](Signature& s) { s.operation = Operation::kBroadcast; },
          [](Signature& s) { s.dtype = base::DType::kF64; },
          [](Signature& s) { s.op = base::ReduceOp::kMin; },
          [](Signature& s) { s.root = 1; },
          [](Signature& s) { s.device = 0; },
          [](Signature& s) { s.prescale = 0.5; },
          [](Signature& s) { s.postscale = 0.5; },
          [](Signature& s) { s.compression = base::Compression::kBf16; },
          [](Signature& s) { s.splits = {2}; },
          [](Signature& s) { s.members = {{"a", {2, 3}}}; },
          [](Signature& s) { s.shape[0] += 1; },
          [](Signature& s) { s.shape.push_back(1); },
          [](Signature& s) { s.shape.clear(); }};
}

TEST(Signature, EveryFieldButThePriorityIsCompared) {
  const Signature plain = allreduce({2, 3});
  for (std::size_t i = 0; i < changes().size(); ++i) {
    Signature other = plain;
    changes()[i](other);
    EXPECT_FALSE(plain == other) << "change " << i;
    EXPECT_FALSE(agree(plain, other)) << "change " << i;
  }
  Signature urgent = plain;
  urgent.priority = 7;
  EXPECT_TRUE(plain == urgent);
  EXPECT_TRUE(agree(plain, urgent));
}

TEST(Signature, ScaleFactorsAreComparedAsBits) {
  Signature a = allreduce({1});
  a.prescale = std::numeric_limits<double>::quiet_NaN();
  Signature b = a;
  EXPECT_TRUE(a == b);
  a.prescale = 0.0;
  b.prescale = -0.0;
  EXPECT_FALSE(a == b);
}

TEST(Signature, NormalizedForgetsWhatTheOperationDoesNotUse) {
  Signature full = allreduce({2});
  full.root = 3;
  full.device = 1;
  full.prescale = 0.5;
  full.postscale = 2;
  full.compression = base::Compression::kF16;
  full.splits = {1, 1};
  full.priority = 4;
  const auto as = [&](Operation operation) {
    Signature signature = full;
    signature.operation = operation;
    return normalized(signature);
  };
  const Signature reduced = as(Operation::kAllreduce);
  EXPECT_EQ(reduced.root, 0);
  EXPECT_EQ(reduced.op, base::ReduceOp::kSum);
  EXPECT_EQ(reduced.prescale, 0.5);
  EXPECT_EQ(reduced.postscale, 2);
  EXPECT_EQ(reduced.priority, 4);

  EXPECT_EQ(reduced.compression, base::Compression::kF16);
  EXPECT_TRUE(reduced.splits.empty());

  const Signature scattered = as(Operation::kReduceScatter);
  EXPECT_EQ(scattered.op, base::ReduceOp::kSum);
  EXPECT_EQ(scattered.postscale, 2);
  EXPECT_EQ(scattered.compression, base::Compression::kF16);
  EXPECT_EQ(scattered.splits, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(scattered.root, 0);

  const Signature exchanged = as(Operation::kAllToAll);
  EXPECT_EQ(exchanged.op, base::ReduceOp::kAverage);
  EXPECT_EQ(exchanged.prescale, 1);
  EXPECT_TRUE(exchanged.splits.empty());

  const Signature sent = as(Operation::kBroadcast);
  EXPECT_EQ(sent.compression, base::Compression::kNone);
  EXPECT_EQ(sent.root, 3);
  EXPECT_EQ(sent.op, base::ReduceOp::kAverage);
  EXPECT_EQ(sent.prescale, 1);
  EXPECT_EQ(sent.postscale, 1);

  const Signature gathered = as(Operation::kAllgather);
  EXPECT_EQ(gathered.root, 0);
  EXPECT_EQ(gathered.op, base::ReduceOp::kAverage);
  EXPECT_EQ(gathered.device, 1);
  EXPECT_EQ(gathered.shape, base::Shape{2});

  Signature barrier;
  barrier.operation = Operation::kBarrier;
  EXPECT_TRUE(as(Operation::kBarrier) == barrier);
  EXPECT_EQ(as(Operation::kBarrier).device, -1);
  EXPECT_EQ(as(Operation::kDeviceBarrier).device, 1) << "it is checked";
  EXPECT_EQ(as(Operation::kDeviceBarrier).priority, 0);
}

TEST(Signature, OnlyTheFirstDimensionOfAnAllgatherMayDiffer) {
  const Signature plain = signature_of(Operation::kAllgather, {2, 3});
  EXPECT_TRUE(agree(plain, signature_of(Operation::kAllgather, {7, 3})));
  EXPECT_TRUE(agree(plain, signature_of(Operation::kAllgather, {0, 3})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kAllgather, {2, 4})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kAllgather, {2})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kAllgather, {})));
  EXPECT_FALSE(agree(signature_of(Operation::kAllgather, {}), plain));
  EXPECT_TRUE(
      agree(signature_of(Operation::kAllgather, {}), signature_of(Operation::kAllgather, {})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kBroadcast, {2, 3})));
  EXPECT_FALSE(agree(allreduce({2, 3}), allreduce({7, 3})));
  EXPECT_FALSE(agree(signature_of(Operation::kBroadcast, {2, 3}),
                     signature_of(Operation::kBroadcast, {7, 3})));
}

TEST(Signature, TheRowsOfAnAllToAllAreNobodyElsesBusiness) {
  const Signature plain = signature_of(Operation::kAllToAll, {2, 3});
  EXPECT_TRUE(agree(plain, signature_of(Operation::kAllToAll, {7, 3})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kAllToAll, {2, 4})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kAllToAll, {2})));
  EXPECT_FALSE(agree(plain, signature_of(Operation::kAllgather, {2, 3})));
  EXPECT_FALSE(agree(signature_of(Operation::kAllgather, {2, 3}), plain));
  EXPECT_FALSE(agree(signature_of(Operation::kReduceScatter, {2}),
                     signature_of(Operation::kReduceScatter, {3})));
  EXPECT_EQ(describe(plain), "all_to_all(f32, [*, 3])");
}

TEST(Signature, RowsOfAReduceScatter) {
  const auto shares = [](const Signature& signature, std::int32_t size) {
    std::vector<std::int64_t> rows;
    std::int64_t before = 0;
    for (std::int32_t rank = 0; rank < size; ++rank) {
      EXPECT_EQ(rows_before_rank(signature, rank, size), before);
      rows.push_back(rows_of_rank(signature, rank, size));
      before += rows.back();
    }
    EXPECT_EQ(before, signature.shape[0]);
    return rows;
  };
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(shares(signature_of(Operation::kReduceScatter, {8, 5}), 4), (Rows{2, 2, 2, 2}));
  EXPECT_EQ(shares(signature_of(Operation::kReduceScatter, {10}), 4), (Rows{3, 3, 2, 2}));
  EXPECT_EQ(shares(signature_of(Operation::kReduceScatter, {2}), 4), (Rows{1, 1, 0, 0}));
  EXPECT_EQ(shares(signature_of(Operation::kReduceScatter, {0}), 3), (Rows{0, 0, 0}));
  EXPECT_EQ(shares(signature_of(Operation::kReduceScatter, {7}), 1), (Rows{7}));
  constexpr std::int64_t kMany = (std::int64_t{1} << 40) + 1;
  EXPECT_EQ(shares(signature_of(Operation::kReduceScatter, {kMany}), 2),
            (Rows{kMany / 2 + 1, kMany / 2}));
  Signature uneven = signature_of(Operation::kReduceScatter, {6, 2});
  uneven.splits = {0, 5, 1};
  EXPECT_EQ(shares(uneven, 3), uneven.splits);
  EXPECT_EQ(row_elements({6, 2, 4}), base::Elements(8));
  EXPECT_EQ(row_elements({0, 3}), base::Elements(3));
  EXPECT_EQ(row_elements({5}), base::Elements(1));
}

TEST(Signature, DescribeSaysWhatMatters) {
  Signature signature = allreduce({128, 784});
  EXPECT_EQ(describe(signature), "allreduce(sum, f32, [128, 784])");
  signature.prescale = 0.5;
  signature.postscale = 0.1;
  signature.device = 2;
  EXPECT_EQ(
      describe(signature),
      "allreduce(sum, f32, [128, 784], prescale 0.5, postscale 0.10000000000000001, on a device)");
  Signature sent = signature_of(Operation::kBroadcast, {});
  sent.root = 1;
  sent.dtype = base::DType::kBf16;
  EXPECT_EQ(describe(sent), "broadcast(root 1, bf16, [])");
  EXPECT_EQ(describe(signature_of(Operation::kAllgather, {3})), "allgather(f32, [3])");
  EXPECT_EQ(describe(signature_of(Operation::kBarrier, {})), "barrier");
  Signature scattered = signature_of(Operation::kReduceScatter, {5, 2});
  scattered.splits = {4, 1};
  scattered.compression = base::Compression::kBf16;
  EXPECT_EQ(describe(scattered),
            "reduce_scatter(average, f32, [5, 2], splits [4, 1], compression bf16)");
  Signature group = allreduce({7});
  group.members = {{"a", {2, 3}}, {"b", {1}}};
  EXPECT_EQ(describe(group), "grouped allreduce(sum, f32, 2 tensors, 7 elements)");
}

TEST(Signature, PayloadIsWhatMoves) {
  EXPECT_EQ(payload_of({allreduce({2, 3}), {}}), base::Bytes(24));
  EXPECT_EQ(payload_of({allreduce({}), {}}), base::Bytes(4));
  EXPECT_EQ(payload_of({allreduce({0, 5}), {}}), base::Bytes(0));
  EXPECT_EQ(payload_of({signature_of(Operation::kAllgather, {2, 3}), {2, 0, 5}}), base::Bytes(84));
  EXPECT_EQ(payload_of({signature_of(Operation::kBarrier, {}), {}}), base::Bytes(0));
  EXPECT_EQ(payload_of({signature_of(Operation::kReduceScatter, {6, 2}), {}}), base::Bytes(48));
}

}  // namespace
}  // namespace ronde::runtime
