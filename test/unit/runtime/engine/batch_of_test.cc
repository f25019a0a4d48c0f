// SPDX-License-Identifier: Apache-2.0
// What the executor gets of the tensors of a batch: which memory, in which blocks, and where
// results go.
#include "runtime/engine/batch_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/plane/exchange.h"

namespace ronde::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int32_t kBatchRank = 1;
constexpr std::int32_t kBatchRanks = 3;

// A tensor of floats with memory behind it.
struct TensorOfFloats {
  explicit TensorOfFloats(Operation operation, base::Shape shape = {4})
      : made(std::make_shared<LocalTensor>()) {
    const std::int64_t elements = base::elements_of(shape).value().value();
    input.resize(static_cast<std::size_t>(elements));
    output.resize(input.size());
    made->name = "t";
    made->signature.operation = operation;
    made->signature.shape = std::move(shape);
    made->work = std::make_shared<Work>();
    made->views.push_back({reinterpret_cast<const std::byte*>(input.data()),
                           reinterpret_cast<std::byte*>(output.data()), base::Elements(elements),
                           base::DType::kF32});
  }
  [[nodiscard]] Batch batch(std::vector<std::int64_t> first_dimensions = {}) const {
    return batch_of(7, {{made->signature, std::move(first_dimensions)}, {made}}, kBatchRanks,
                    nullptr);
  }
  [[nodiscard]] const base::TensorView& view() const { return made->views.front(); }

  std::vector<float> input;
  std::vector<float> output;
  LocalTensorPtr made;
};

TEST(BatchOf, HasTheTensorsInOrderAndAllMembersOfGroups) {
  const TensorOfFloats first(Operation::kAllreduce, {2});
  const TensorOfFloats second(Operation::kAllreduce, {3});
  second.made->views.push_back(first.view());  // a group of two
  TensorTable::Claimed claimed{{first.made->signature, {}}, {first.made, second.made}};
  claimed.agreed.signature.op = base::ReduceOp::kMax;
  claimed.agreed.signature.prescale = 2;
  claimed.agreed.signature.postscale = 3;
  claimed.agreed.signature.compression = base::Compression::kBf16;
  claimed.agreed.signature.on_board = true;
  const Batch batch = batch_of(7, claimed, kBatchRanks, nullptr);
  const collectives::Exchange& exchange = batch.exchange;
  EXPECT_FALSE(batch.of_device);
  EXPECT_EQ(exchange.operation, Operation::kAllreduce);
  EXPECT_EQ(exchange.sequence, 7U);
  ASSERT_EQ(exchange.tensors.size(), 3U);
  EXPECT_EQ(exchange.tensors[0].output, first.view().output);
  EXPECT_EQ(exchange.tensors[1].output, second.view().output);
  EXPECT_EQ(exchange.tensors[2].output, first.view().output);
  EXPECT_EQ(exchange.bytes(), base::Bytes(28));
  EXPECT_EQ(exchange.how.op, base::ReduceOp::kMax);
  EXPECT_EQ(exchange.how.prescale, 2);
  EXPECT_EQ(exchange.how.postscale, 3);
  EXPECT_EQ(exchange.how.compression, base::Compression::kBf16);
  EXPECT_TRUE(exchange.on_board);
}

TEST(BatchOf, KnowsTheRoot) {
  const TensorOfFloats tensor(Operation::kBroadcast);
  tensor.made->signature.root = 2;
  EXPECT_EQ(tensor.batch().exchange.root, 2);
}

TEST(BatchOf, ABarrierOfDevicesHasATensorForItsStream) {
  const TensorOfFloats tensor(Operation::kDeviceBarrier);
  tensor.made->views.clear();
  tensor.made->ready.resize(1);
  const Batch batch = tensor.batch();
  EXPECT_TRUE(batch.of_device);
  ASSERT_EQ(batch.exchange.tensors.size(), 1U);
  EXPECT_EQ(batch.exchange.tensors[0].elements.value(), 0);
}

TEST(BatchOf, AnAllgatherMakesTheMemoryForItsBlocks) {
  const TensorOfFloats tensor(Operation::kAllgather, {2, 5});
  const Batch batch = tensor.batch({3, 2, 0});
  const auto blocks = collectives::blocks_of(batch.exchange, kBatchRank);
  ASSERT_TRUE(blocks.ok());
  const Work& work = *tensor.made->work;
  EXPECT_THAT(work.output_shape, ElementsAre(5, 5));
  EXPECT_EQ(work.output_dtype, base::DType::kF32);
  EXPECT_TRUE(work.received_splits.empty());
  ASSERT_EQ(work.output.size(), 25 * sizeof(float));
  ASSERT_EQ(blocks->size(), 3U);
  EXPECT_EQ((*blocks)[0].output, work.output.data());
  EXPECT_EQ((*blocks)[0].input, nullptr);
  EXPECT_EQ((*blocks)[0].elements.value(), 15);
  EXPECT_EQ((*blocks)[1].output, work.output.data() + 15 * sizeof(float));
  EXPECT_EQ((*blocks)[1].input, tensor.view().input) << "this rank's block";
  EXPECT_EQ((*blocks)[1].elements.value(), 10);
  EXPECT_EQ((*blocks)[2].elements.value(), 0);
}

TEST(BatchOf, AnAllgatherUsesMemoryOfTheCallerWhereAllGiveAsManyRows) {
  TensorOfFloats tensor(Operation::kAllgather, {2, 5});
  tensor.output.resize(3 * tensor.input.size());
  tensor.made->views[0].output = reinterpret_cast<std::byte*>(tensor.output.data());
  const Batch batch = tensor.batch({2, 2, 2});
  const auto blocks = collectives::blocks_of(batch.exchange, kBatchRank);
  ASSERT_TRUE(blocks.ok());
  EXPECT_EQ(tensor.made->work->output.data(), tensor.view().output);
  EXPECT_EQ(tensor.made->work->output.size(), 30 * sizeof(float));
  EXPECT_EQ((*blocks)[2].output, tensor.view().output + 20 * sizeof(float));
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>{3, 2, 2}, {0, 2, 2}, {3, 2, 1}, {0, 2, 4}}) {
    const Batch uneven = tensor.batch(rows);
    ASSERT_TRUE(collectives::blocks_of(uneven.exchange, kBatchRank).ok());
    EXPECT_NE(tensor.made->work->output.data(), tensor.view().output);
  }
}

TEST(BatchOf, AReduceScatterGivesAllBlocksAndKeepsOne) {
  const TensorOfFloats tensor(Operation::kReduceScatter, {7, 2});  // rows: 3, 2, 2
  const auto blocks = collectives::blocks_of(tensor.batch().exchange, kBatchRank).value();
  ASSERT_EQ(blocks.size(), 3U);
  const std::byte* const input = tensor.view().input;
  EXPECT_EQ(blocks[0].input, input);
  EXPECT_EQ(blocks[0].elements.value(), 6);
  EXPECT_EQ(blocks[0].output, nullptr);
  EXPECT_EQ(blocks[1].input, input + 6 * sizeof(float));
  EXPECT_EQ(blocks[1].elements.value(), 4);
  EXPECT_EQ(blocks[1].output, tensor.view().output);
  EXPECT_EQ(blocks[2].input, input + 10 * sizeof(float));
  EXPECT_EQ(blocks[2].elements.value(), 4);
}

TEST(BatchOf, AReduceScatterFollowsTheSplits) {
  const TensorOfFloats tensor(Operation::kReduceScatter, {7, 2});
  tensor.made->signature.splits = {0, 6, 1};
  EXPECT_THAT(tensor.batch().exchange.rows, ElementsAre(0, 6, 1));
}

TEST(BatchOf, AnAllToAllMakesTheMemoryForWhatComes) {
  const TensorOfFloats tensor(Operation::kAllToAll, {6, 2});
  tensor.made->splits = {1, 2, 3};
  const collectives::Exchange exchange = tensor.batch().exchange;
  const collectives::RowsToSend send = exchange.rows_to_send();
  EXPECT_EQ(send.input, tensor.view().input);
  EXPECT_THAT(send.rows, ElementsAre(1, 2, 3));
  EXPECT_EQ(send.row_bytes.value(), 8);
  const std::vector<std::int64_t> received{4, 0, 1};
  const auto memory = exchange.result(received);
  ASSERT_TRUE(memory.ok());
  const Work& work = *tensor.made->work;
  EXPECT_EQ(memory->data(), work.output.data());
  EXPECT_EQ(memory->size(), 40U);
  EXPECT_THAT(work.output_shape, ElementsAre(5, 2));
  EXPECT_THAT(work.received_splits, ElementsAre(4, 0, 1));
}

TEST(BatchOf, RowsThatAreTooManyAreRefused) {
  const TensorOfFloats tensor(Operation::kAllToAll, {6, 2});
  tensor.made->splits = {1, 2, 3};
  const collectives::Exchange exchange = tensor.batch().exchange;
  constexpr std::int64_t kMost = INT64_MAX;
  const std::vector<std::vector<std::int64_t>> wrong{{kMost, 1, 0}, {-1, 1, 0}, {kMost / 4, 0, 0}};
  for (const auto& received : wrong) {
    const auto memory = exchange.result(received);
    EXPECT_EQ(memory.status().code(), base::Code::kInvalidArgument);
    EXPECT_THAT(memory.status().message(), HasSubstr("the other ranks send more than 2^63 - 1"));
  }
}

}  // namespace
}  // namespace ronde::runtime
