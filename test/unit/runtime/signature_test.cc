// SPDX-License-Identifier: Apache-2.0
// What ranks say about tensors: comparing, describing and counting it.
#include "runtime/signature.h"

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

Signature of(Operation operation, base::Shape shape) {
  Signature signature;
  signature.operation = operation;
  signature.shape = std::move(shape);
  return signature;
}

// Every field that is compared, changed in one way.
std::vector<std::function<void(Signature&)>> changes() {
  return {[](Signature& s) { s.operation = Operation::kBroadcast; },
          [](Signature& s) { s.dtype = base::DType::kF64; },
          [](Signature& s) { s.op = base::ReduceOp::kMin; },
          [](Signature& s) { s.root = 1; },
          [](Signature& s) { s.device = 0; },
          [](Signature& s) { s.prescale = 0.5; },
          [](Signature& s) { s.postscale = 0.5; },
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

  const Signature sent = as(Operation::kBroadcast);
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
}

TEST(Signature, OnlyTheFirstDimensionOfAnAllgatherMayDiffer) {
  const Signature plain = of(Operation::kAllgather, {2, 3});
  EXPECT_TRUE(agree(plain, of(Operation::kAllgather, {7, 3})));
  EXPECT_TRUE(agree(plain, of(Operation::kAllgather, {0, 3})));
  EXPECT_FALSE(agree(plain, of(Operation::kAllgather, {2, 4})));
  EXPECT_FALSE(agree(plain, of(Operation::kAllgather, {2})));
  EXPECT_FALSE(agree(plain, of(Operation::kAllgather, {})));
  EXPECT_FALSE(agree(of(Operation::kAllgather, {}), plain));
  EXPECT_TRUE(agree(of(Operation::kAllgather, {}), of(Operation::kAllgather, {})));
  EXPECT_FALSE(agree(plain, of(Operation::kBroadcast, {2, 3})));
  EXPECT_FALSE(agree(allreduce({2, 3}), allreduce({7, 3})));
  EXPECT_FALSE(agree(of(Operation::kBroadcast, {2, 3}), of(Operation::kBroadcast, {7, 3})));
}

TEST(Signature, DescribeSaysWhatMatters) {
  Signature signature = allreduce({128, 784});
  EXPECT_EQ(describe(signature), "allreduce(sum, f32, [128, 784])");
  signature.prescale = 0.5;
  signature.postscale = 0.1;
  signature.device = 2;
  EXPECT_EQ(
      describe(signature),
      "allreduce(sum, f32, [128, 784], prescale 0.5, postscale 0.10000000000000001, device 2)");
  Signature sent = of(Operation::kBroadcast, {});
  sent.root = 1;
  sent.dtype = base::DType::kBf16;
  EXPECT_EQ(describe(sent), "broadcast(root 1, bf16, [])");
  EXPECT_EQ(describe(of(Operation::kAllgather, {3})), "allgather(f32, [3])");
  EXPECT_EQ(describe(of(Operation::kBarrier, {})), "barrier");
  EXPECT_EQ(name_of(static_cast<Operation>(77)), "unknown operation");
}

TEST(Signature, PayloadIsWhatMoves) {
  EXPECT_EQ(payload_of({allreduce({2, 3}), {}}), base::Bytes(24));
  EXPECT_EQ(payload_of({allreduce({}), {}}), base::Bytes(4));
  EXPECT_EQ(payload_of({allreduce({0, 5}), {}}), base::Bytes(0));
  EXPECT_EQ(payload_of({of(Operation::kAllgather, {2, 3}), {2, 0, 5}}), base::Bytes(84));
  EXPECT_EQ(payload_of({of(Operation::kBarrier, {}), {}}), base::Bytes(0));
}

TEST(Signature, RankLists) {
  EXPECT_EQ(rank_list({}), "");
  EXPECT_EQ(rank_list({0}), "0");
  EXPECT_EQ(rank_list({0, 1, 2}), "0-2");
  EXPECT_EQ(rank_list({0, 2, 3}), "0, 2-3");
  EXPECT_EQ(rank_list({1, 3, 5, 6, 7, 9}), "1, 3, 5-7, 9");
  EXPECT_EQ(ranks_phrase({}), "no rank");
  EXPECT_EQ(ranks_phrase({4}), "rank 4");
  EXPECT_EQ(ranks_phrase({4, 5}), "ranks 4-5");
}

}  // namespace
}  // namespace ronde::runtime
