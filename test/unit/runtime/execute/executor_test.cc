// SPDX-License-Identifier: Apache-2.0
// The executor: batches one after another, the data plane's arguments for each, and where results
// go.
#include "runtime/execute/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using base::TensorView;
using collectives::Reduction;
using collectives::StepResult;
using testing::ElementsAre;

constexpr std::int32_t kRank = 1;
constexpr std::int32_t kRanks = 3;

// Records the calls of a data plane, and sets what the steps of its collectives return.
struct Script {
  std::vector<std::string> calls;
  std::vector<TensorView> views;  // the last call's
  Reduction reduction;
  collectives::RowsToSend send;
  collectives::AllocateRows allocate;
  std::vector<std::uint64_t> sequences;
  // What the steps of every collective return in turn; after the last one kDone.
  std::vector<base::Result<StepResult>> results;
  int steps = 0;
  int alive = 0;
  bool rings = false;
};

class ScriptedCollective final : public collectives::Collective {
 public:
  explicit ScriptedCollective(Script& script) : script_(script) { ++script_.alive; }
  ~ScriptedCollective() override { --script_.alive; }
  ScriptedCollective(const ScriptedCollective&) = delete;
  ScriptedCollective& operator=(const ScriptedCollective&) = delete;

  base::Result<StepResult> step() override {
    ++script_.steps;
    if (next_ == script_.results.size()) return StepResult::kDone;
    return script_.results[next_++];
  }

 private:
  Script& script_;
  std::size_t next_ = 0;
};

class ScriptedPlane final : public collectives::DataPlane {
 public:
  explicit ScriptedPlane(Script& script) : script_(script) {}

  CollectivePtr allreduce(const Views& tensors, const Reduction& reduction, bool on_board,
                          std::uint64_t sequence) override {
    script_.reduction = reduction;
    return called(on_board ? "allreduce on the board" : "allreduce", tensors, sequence);
  }
  CollectivePtr broadcast(const Views& tensors, std::int32_t root,
                          std::uint64_t sequence) override {
    return called("broadcast from " + std::to_string(root), tensors, sequence);
  }
  CollectivePtr allgather(base::DType /*dtype*/, const Views& blocks,
                          std::uint64_t sequence) override {
    return called("allgather", blocks, sequence);
  }
  CollectivePtr reduce_scatter(const Views& blocks, const Reduction& reduction,
                               std::uint64_t sequence) override {
    script_.reduction = reduction;
    return called("reduce-scatter", blocks, sequence);
  }
  CollectivePtr all_to_all(collectives::RowsToSend send, collectives::AllocateRows allocate,
                           std::uint64_t sequence) override {
    script_.send = std::move(send);
    script_.allocate = std::move(allocate);
    return called("all-to-all", {}, sequence);
  }
  CollectivePtr barrier(std::uint64_t sequence) override { return called("barrier", {}, sequence); }
  Status tune(const base::Config& /*config*/, const std::function<Status()>& idle) override {
    return idle();
  }
  void want_rings(bool wanted) override { script_.rings = wanted; }
  [[nodiscard]] std::string description() const override { return "a script"; }

 private:
  CollectivePtr called(const std::string& what, const Views& views, std::uint64_t sequence) {
    script_.calls.push_back(what);
    script_.views = views;
    script_.sequences.push_back(sequence);
    return std::make_unique<ScriptedCollective>(script_);
  }

  Script& script_;
};

// A tensor of floats with memory behind it.
struct Tensor {
  explicit Tensor(Operation operation, base::Shape shape = {4})
      : made(std::make_shared<LocalTensor>()) {
    const std::int64_t elements = base::elements_of(shape).value().value();
    input.resize(static_cast<std::size_t>(elements));
    output.resize(input.size());
    made->name = "t";
    made->signature.operation = operation;
    made->signature.shape = std::move(shape);
    made->work = std::make_shared<Work>();
    if (operation == Operation::kBarrier) return;
    made->views.push_back({reinterpret_cast<const std::byte*>(input.data()),
                           reinterpret_cast<std::byte*>(output.data()), base::Elements(elements),
                           base::DType::kF32});
  }
  [[nodiscard]] ExecutableBatch batch(std::uint64_t sequence = 1) const {
    return {sequence, {made->signature, {}}, {made}};
  }

  std::vector<float> input;
  std::vector<float> output;
  LocalTensorPtr made;
};

class ExecutorTest : public testing::Test {
 protected:
  Executor make(int watch = 0) {
    return {std::make_unique<ScriptedPlane>(script_), kRank, kRanks, watch};
  }
  // Steps until the batch that runs is finished.
  void finish(Executor& executor) {
    while (executor.busy()) ASSERT_TRUE(executor.step(finished_).ok());
  }

  Script script_;
  std::vector<ExecutableBatch> finished_;
};

TEST_F(ExecutorTest, NothingToDoIsNotBusy) {
  Executor executor = make();
  EXPECT_FALSE(executor.busy());
  const auto moved = executor.step(finished_);
  ASSERT_TRUE(moved.ok());
  EXPECT_FALSE(*moved);
}

TEST_F(ExecutorTest, BatchesFollowEachOther) {
  Executor executor = make();
  script_.results = {StepResult::kProgress};
  const Tensor first(Operation::kAllreduce);
  const Tensor second(Operation::kBarrier);
  executor.enqueue(first.batch(7));
  executor.enqueue(second.batch(8));
  EXPECT_TRUE(executor.busy());
  EXPECT_EQ(executor.batch().sequence, 7U);
  ASSERT_TRUE(executor.step(finished_).ok());
  EXPECT_THAT(script_.calls, ElementsAre("allreduce")) << "the second waits for the first";
  EXPECT_TRUE(finished_.empty());
  ASSERT_TRUE(executor.step(finished_).ok());
  ASSERT_EQ(finished_.size(), 1U);
  EXPECT_EQ(finished_[0].sequence, 7U);
  EXPECT_EQ(finished_[0].tensors[0], first.made);
  EXPECT_EQ(script_.alive, 0) << "what is finished holds nothing";
  EXPECT_EQ(executor.batch().sequence, 8U);
  finish(executor);
  EXPECT_THAT(script_.calls, ElementsAre("allreduce", "barrier"));
  EXPECT_THAT(script_.sequences, ElementsAre(7U, 8U));
  EXPECT_FALSE(executor.busy());
}

TEST_F(ExecutorTest, AStepSaysWhetherAnythingMoved) {
  Executor executor = make();
  script_.results = {StepResult::kIdle, StepResult::kProgress};
  executor.enqueue(Tensor(Operation::kBarrier).batch());
  EXPECT_FALSE(executor.step(finished_).value());
  EXPECT_TRUE(executor.step(finished_).value());
  EXPECT_TRUE(executor.step(finished_).value()) << "finishing is moving";
}

TEST_F(ExecutorTest, WatchesALittleBeforeItSaysThatNothingMoves) {
  Executor executor = make(3);
  script_.results.assign(6, StepResult::kIdle);
  executor.enqueue(Tensor(Operation::kBarrier).batch());
  EXPECT_FALSE(executor.step(finished_).value());
  EXPECT_EQ(script_.steps, 4) << "one look and three more";
  EXPECT_TRUE(executor.step(finished_).value()) << "found by a look of the same step";
  EXPECT_EQ(script_.steps, 7);
  EXPECT_EQ(finished_.size(), 1U);
}

TEST_F(ExecutorTest, AnErrorEndsIt) {
  Executor executor = make(5);
  script_.results = {Status::error(Code::kInternal, "the wire is cut")};
  executor.enqueue(Tensor(Operation::kBarrier).batch());
  const auto moved = executor.step(finished_);
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.status().message(), "the wire is cut");
  EXPECT_EQ(script_.steps, 1) << "nothing may be stepped after an error";
  EXPECT_TRUE(executor.busy());
  executor.abandon();
  EXPECT_FALSE(executor.busy());
  EXPECT_EQ(script_.alive, 0);
}

TEST_F(ExecutorTest, ABatchIsTheTensorsInOrderAndGroupsAreAllTheirMembers) {
  Executor executor = make();
  const Tensor first(Operation::kAllreduce, {2});
  const Tensor second(Operation::kAllreduce, {3});
  second.made->views.push_back(first.made->views[0]);  // a group of two
  ExecutableBatch batch = first.batch();
  batch.agreed.signature.op = base::ReduceOp::kMax;
  batch.agreed.signature.prescale = 2;
  batch.agreed.signature.postscale = 3;
  batch.agreed.signature.compression = base::Compression::kBf16;
  batch.tensors.push_back(second.made);
  executor.enqueue(batch);
  finish(executor);
  ASSERT_EQ(script_.views.size(), 3U);
  EXPECT_EQ(script_.views[0].output, first.made->views[0].output);
  EXPECT_EQ(script_.views[1].output, second.made->views[0].output);
  EXPECT_EQ(script_.views[2].output, first.made->views[0].output);
  EXPECT_EQ(script_.reduction.op, base::ReduceOp::kMax);
  EXPECT_EQ(script_.reduction.prescale, 2);
  EXPECT_EQ(script_.reduction.postscale, 3);
  EXPECT_EQ(script_.reduction.compression, base::Compression::kBf16);
}

TEST_F(ExecutorTest, AnAllreduceKnowsThatItsMemoryIsOnTheBoard) {
  Executor executor = make();
  const Tensor tensor(Operation::kAllreduce);
  tensor.made->signature.on_board = true;
  executor.enqueue(tensor.batch());
  finish(executor);
  EXPECT_THAT(script_.calls, ElementsAre("allreduce on the board"));
}

TEST_F(ExecutorTest, ABroadcastKnowsItsRoot) {
  Executor executor = make();
  const Tensor tensor(Operation::kBroadcast);
  tensor.made->signature.root = 2;
  executor.enqueue(tensor.batch());
  finish(executor);
  EXPECT_THAT(script_.calls, ElementsAre("broadcast from 2"));
}

TEST_F(ExecutorTest, AnAllgatherMakesTheMemoryForItsBlocks) {
  Executor executor = make();
  const Tensor tensor(Operation::kAllgather, {2, 5});
  ExecutableBatch batch = tensor.batch();
  batch.agreed.first_dimensions = {3, 2, 0};
  executor.enqueue(batch);
  finish(executor);
  const Work& work = *tensor.made->work;
  EXPECT_THAT(work.output_shape, ElementsAre(5, 5));
  EXPECT_EQ(work.output_dtype, base::DType::kF32);
  ASSERT_EQ(work.output.size(), 25 * sizeof(float));
  ASSERT_EQ(script_.views.size(), 3U);
  EXPECT_EQ(script_.views[0].output, work.output.data());
  EXPECT_EQ(script_.views[0].input, nullptr);
  EXPECT_EQ(script_.views[0].elements.value(), 15);
  EXPECT_EQ(script_.views[1].output, work.output.data() + 15 * sizeof(float));
  EXPECT_EQ(script_.views[1].input, tensor.made->views[0].input) << "this rank's block";
  EXPECT_EQ(script_.views[1].elements.value(), 10);
  EXPECT_EQ(script_.views[2].elements.value(), 0);
}

TEST_F(ExecutorTest, AReduceScatterGivesAllBlocksAndKeepsOne) {
  Executor executor = make();
  const Tensor tensor(Operation::kReduceScatter, {7, 2});  // rows: 3, 2, 2
  executor.enqueue(tensor.batch());
  finish(executor);
  ASSERT_EQ(script_.views.size(), 3U);
  const std::byte* const input = tensor.made->views[0].input;
  EXPECT_EQ(script_.views[0].input, input);
  EXPECT_EQ(script_.views[0].elements.value(), 6);
  EXPECT_EQ(script_.views[0].output, nullptr);
  EXPECT_EQ(script_.views[1].input, input + 6 * sizeof(float));
  EXPECT_EQ(script_.views[1].elements.value(), 4);
  EXPECT_EQ(script_.views[1].output, tensor.made->views[0].output);
  EXPECT_EQ(script_.views[2].input, input + 10 * sizeof(float));
  EXPECT_EQ(script_.views[2].elements.value(), 4);
}

TEST_F(ExecutorTest, AReduceScatterFollowsTheSplits) {
  Executor executor = make();
  const Tensor tensor(Operation::kReduceScatter, {7, 2});
  tensor.made->signature.splits = {0, 6, 1};
  executor.enqueue(tensor.batch());
  finish(executor);
  ASSERT_EQ(script_.views.size(), 3U);
  EXPECT_EQ(script_.views[0].elements.value(), 0);
  EXPECT_EQ(script_.views[1].elements.value(), 12);
  EXPECT_EQ(script_.views[2].elements.value(), 2);
}

TEST_F(ExecutorTest, AnAllToAllMakesTheMemoryForWhatComes) {
  Executor executor = make();
  const Tensor tensor(Operation::kAllToAll, {6, 2});
  tensor.made->splits = {1, 2, 3};
  script_.results = {StepResult::kProgress};
  executor.enqueue(tensor.batch());
  ASSERT_TRUE(executor.step(finished_).ok());
  EXPECT_EQ(script_.send.input, tensor.made->views[0].input);
  EXPECT_THAT(script_.send.rows, ElementsAre(1, 2, 3));
  EXPECT_EQ(script_.send.row_bytes.value(), 8);
  const std::vector<std::int64_t> received{4, 0, 1};
  const auto memory = script_.allocate(received);
  ASSERT_TRUE(memory.ok());
  const Work& work = *tensor.made->work;
  EXPECT_EQ(memory->data(), work.output.data());
  EXPECT_EQ(memory->size(), 40U);
  EXPECT_THAT(work.output_shape, ElementsAre(5, 2));
  EXPECT_THAT(work.received_splits, ElementsAre(4, 0, 1));
}

TEST_F(ExecutorTest, WishesAndTuningGoToThePlane) {
  Executor executor = make();
  executor.want_rings(true);
  EXPECT_TRUE(script_.rings);
  executor.want_rings(false);
  EXPECT_FALSE(script_.rings);
  EXPECT_EQ(executor.description(), "a script");
  const Status tuned = executor.tune(
      base::Config(), [] { return Status::error(Code::kDeadline, "the others did not come"); });
  EXPECT_EQ(tuned.message(), "the others did not come");
}

}  // namespace
}  // namespace ronde::runtime
