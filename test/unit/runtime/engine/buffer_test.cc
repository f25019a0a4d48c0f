// SPDX-License-Identifier: Apache-2.0
// Tensors on the board, over engines in one process: reduced in place where every rank has them
// there, and with the same result where some or none have; and the plan when ranks change where
// their tensors lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/negotiate/disagreement.h"
#include "runtime/negotiate/messages.h"
#include "runtime/tensors/submission.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Operation;
using base::Status;
using ronde::testing::allreduce_of;
using ronde::testing::EngineOptions;
using ronde::testing::run_job;
using ::testing::HasSubstr;

constexpr std::size_t kElements = 50'001;  // more than a small vector; the last line is not full

// A tensor of this rank, on the board or not, which holds what it contributes in a step.
class Tensor {
 public:
  Tensor(Engine& engine, bool on_board, std::size_t elements = kElements) : elements_(elements) {
    if (on_board) {
      auto buffer = engine.allocate(base::Bytes(bytes()));
      EXPECT_TRUE(buffer.ok()) << buffer.status().message();
      buffer_ = std::move(*buffer);
      data_ = reinterpret_cast<float*>(buffer_->bytes().data());
    } else {
      plain_.resize(elements);
      data_ = plain_.data();
    }
  }

  void fill(int rank, int step) {
    for (std::size_t i = 0; i < elements_; ++i) data_[i] = value(rank, step, i);
  }
  void expect_sum(int ranks, int step) const {
    for (std::size_t i = 0; i < elements_; ++i) {
      float sum = 0;
      for (int rank = 0; rank < ranks; ++rank) sum += value(rank, step, i);
      ASSERT_EQ(data_[i], sum) << "element " << i << " of step " << step;
    }
  }
  [[nodiscard]] Submission submission(const std::string& name) const {
    std::vector<float> nothing;
    Submission submission = allreduce_of(name, nothing);
    submission.signature.shape = {static_cast<std::int64_t>(elements_)};
    submission.views[0].input = reinterpret_cast<const std::byte*>(data_);
    submission.views[0].output = reinterpret_cast<std::byte*>(data_);
    return submission;
  }
  [[nodiscard]] std::int64_t bytes() const {
    return static_cast<std::int64_t>(elements_ * sizeof(float));
  }

 private:
  static float value(int rank, int step, std::size_t i) {
    return static_cast<float>(i % 1000) * static_cast<float>(rank + 1) + static_cast<float>(step);
  }

  std::size_t elements_;
  std::unique_ptr<BoardBuffer> buffer_;
  std::vector<float> plain_;
  float* data_ = nullptr;
};

void reduce(Engine& engine, Tensor& tensor, int step, const std::string& name = "t") {
  tensor.fill(engine.rank(), step);
  const auto work = engine.submit(tensor.submission(name));
  ASSERT_TRUE(work.ok()) << work.status().message();
  const Status done = engine.wait(**work);
  ASSERT_TRUE(done.ok()) << done.message();
  tensor.expect_sum(engine.size(), step);
}

class EngineBufferTest : public ::testing::TestWithParam<int> {};

TEST_P(EngineBufferTest, AllRanksOnTheBoard) {
  run_job(GetParam(), [](int /*rank*/, Engine& engine) {
    Tensor tensor(engine, true);
    for (int step = 0; step < 10; ++step) reduce(engine, tensor, step);
    EXPECT_EQ(engine.statistics().full_requests, 1U);
    EXPECT_EQ(engine.statistics().planned_requests, 9U);
    const auto in_place = engine.statistics().in_place_bytes;
    const bool one_host = engine.local_size() == engine.size();
    EXPECT_EQ(in_place, one_host ? engine.statistics().payload_bytes : 0U);
    Tensor plain(engine, false);
    reduce(engine, plain, 0, "plain");
    EXPECT_EQ(engine.statistics().in_place_bytes, in_place);
  });
}

// What comes of it, test/conformance compares.
TEST_P(EngineBufferTest, BlocksOnTheBoardAreReadThere) {
  run_job(GetParam(), [](int rank, Engine& engine) {
    const auto ranks = static_cast<std::size_t>(engine.size());
    const bool one_host = engine.local_size() == engine.size();
    for (const bool on_board : {true, false}) {
      Tensor input(engine, on_board, kElements * ranks);
      input.fill(rank, 0);
      std::vector<float> block(kElements);
      for (const Operation operation : {Operation::kReduceScatter, Operation::kAllgather}) {
        Submission submission = input.submission(on_board ? "on the board" : "elsewhere");
        submission.signature.operation = operation;
        const bool scatters = operation == Operation::kReduceScatter;
        submission.views[0].output =
            scatters ? reinterpret_cast<std::byte*>(block.data()) : nullptr;
        const auto before = engine.statistics().in_place_bytes;
        const auto work = engine.submit(std::move(submission));
        ASSERT_TRUE(work.ok()) << work.status().message();
        ASSERT_TRUE(engine.wait(**work).ok());
        EXPECT_EQ(engine.statistics().in_place_bytes - before,
                  on_board && one_host ? static_cast<std::uint64_t>(input.bytes()) : 0U);
      }
    }
  });
}

TEST_P(EngineBufferTest, OnlySomeRanksOnTheBoardAndTheStepsStayPlanned) {
  run_job(GetParam(), [](int rank, Engine& engine) {
    Tensor tensor(engine, rank % 2 == 0);
    for (int step = 0; step < 10; ++step) reduce(engine, tensor, step);
    EXPECT_EQ(engine.statistics().full_requests, 1U);
  });
}

TEST_P(EngineBufferTest, ChangingPlacesFromStepToStep) {
  run_job(GetParam(), [](int rank, Engine& engine) {
    Tensor on_board(engine, true);
    Tensor plain(engine, false);
    for (int step = 0; step < 30; ++step) {
      const bool here = step < 3 || (step + rank) % 3 != 0;
      reduce(engine, here ? on_board : plain, step);
    }
    // The first request, and at most one more when the tensor leaves the board.
    EXPECT_LE(engine.statistics().full_requests, 2U);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineBufferTest, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST(EngineBuffer, ASettingBoundsThem) {
  EngineOptions options;
  options.environment = {"RONDE_BUFFER_BYTES=100000"};
  run_job(1, options, [](int /*rank*/, Engine& engine) {
    auto most = engine.allocate(base::Bytes(100'000));
    ASSERT_TRUE(most.ok());
    const auto refused = engine.allocate(base::Bytes(4096));
    EXPECT_EQ(refused.status().code(), Code::kOutOfMemory);
    EXPECT_THAT(refused.status().message(), HasSubstr("RONDE_BUFFER_BYTES"));
    const auto elsewhere = engine.allocate_anywhere(base::Bytes(4096));
    ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().message();
    EXPECT_FALSE((*elsewhere)->on_board());
    std::memset((*elsewhere)->bytes().data(), 1, (*elsewhere)->bytes().size());
    most->reset();
    EXPECT_TRUE(engine.allocate(base::Bytes(100'000)).ok());
    EXPECT_TRUE((*engine.allocate_anywhere(base::Bytes(4096)))->on_board());
  });
  options.environment = {"RONDE_BUFFER_BYTES=0"};
  run_job(2, options, [](int /*rank*/, Engine& engine) {
    EXPECT_EQ(engine.allocate(base::Bytes(1)).status().code(), Code::kOutOfMemory);
    Tensor tensor(engine, false);
    reduce(engine, tensor, 0);
  });
}

TEST(EngineBuffer, OutlivesItsEngine) {
  std::unique_ptr<BoardBuffer> buffer;
  run_job(1, [&](int /*rank*/, Engine& engine) {
    buffer = std::move(*engine.allocate(base::Bytes(1 << 20)));
    std::memset(buffer->bytes().data(), 1, 1 << 20);
  });
  EXPECT_EQ(buffer->bytes().back(), std::byte{1});
  std::memset(buffer->bytes().data(), 2, 1 << 20);
  buffer.reset();
}

// ---- the parts ----

TEST(OnBoard, IsForWhatLiesInsideTheArenaAndForAllreducesInPlace) {
  std::vector<std::byte> arena(4096);
  std::vector<std::byte> outside(4096);
  const base::Bytes small(1000);
  LocalTensor tensor;
  tensor.signature.shape = {256};
  tensor.views = {{arena.data(), arena.data(), base::Elements(256), base::DType::kF32}};
  EXPECT_TRUE(may_be_used_in_place(tensor, arena, small));
  EXPECT_FALSE(may_be_used_in_place(tensor, outside, small));
  EXPECT_FALSE(may_be_used_in_place(tensor, arena, base::Bytes(1024))) << "small";
  tensor.views[0].input = outside.data();
  EXPECT_FALSE(may_be_used_in_place(tensor, arena, small)) << "out of place";
  tensor.views[0].input = tensor.views[0].output = arena.data() + 3073;
  EXPECT_FALSE(may_be_used_in_place(tensor, arena, small)) << "its end lies outside";
  tensor.views[0].input = tensor.views[0].output = arena.data() + 3072;
  EXPECT_TRUE(may_be_used_in_place(tensor, arena, small));
  tensor.views.push_back({nullptr, nullptr, base::Elements(0), base::DType::kF32});
  EXPECT_TRUE(may_be_used_in_place(tensor, arena, small)) << "an empty one lies anywhere";
  tensor.views[1] = {outside.data(), outside.data(), base::Elements(1), base::DType::kF32};
  EXPECT_FALSE(may_be_used_in_place(tensor, arena, small)) << "one of a group lies outside";
  tensor.views.pop_back();
  tensor.signature.compression = base::Compression::kF16;
  EXPECT_FALSE(may_be_used_in_place(tensor, arena, small));
  tensor.signature.compression = base::Compression::kNone;
  tensor.signature.operation = Operation::kBroadcast;
  EXPECT_FALSE(may_be_used_in_place(tensor, arena, small));
  for (const Operation reads : {Operation::kAllgather, Operation::kReduceScatter}) {
    tensor.signature.operation = reads;
    tensor.views[0] = {arena.data(), outside.data(), base::Elements(256), base::DType::kF32};
    EXPECT_TRUE(may_be_used_in_place(tensor, arena, small)) << "the output may lie anywhere";
    EXPECT_FALSE(may_be_used_in_place(tensor, outside, small));
  }
}

TEST(OnBoard, IsAgreedOnWhenAllRanksSaySo) {
  Statement here;
  here.signature.shape = {7};
  here.signature.on_board = true;
  Statement elsewhere = here;
  elsewhere.signature.on_board = false;
  EXPECT_TRUE(agree_on("t", {here, here})->signature.on_board);
  for (const auto& said :
       {std::vector{here, elsewhere}, {elsewhere, here}, {elsewhere, elsewhere}}) {
    const auto agreed = agree_on("t", said);
    ASSERT_TRUE(agreed.ok()) << agreed.status().message();
    EXPECT_FALSE(agreed->signature.on_board);
  }
}

TEST(OnBoard, TravelsInMessages) {
  for (const bool on_board : {false, true}) {
    RequestAnnouncement request{"t", "", {}};
    request.signature.on_board = on_board;
    const auto announced = decode_announcement(encode(Announcement(request)));
    ASSERT_TRUE(announced.ok());
    EXPECT_EQ(std::get<RequestAnnouncement>(*announced).signature.on_board, on_board);
  }
}

TEST(OnBoard, APlannedEntryOnTheBoardIsForTensorsOnTheBoard) {
  for (const bool planned : {false, true}) {
    for (const bool here : {false, true}) {
      TensorTable table(0);
      BindDecision bind{0, 1, "t", {}};
      bind.tensor.signature.on_board = planned;
      ASSERT_TRUE(table.bind(bind).ok());
      auto tensor = std::make_shared<LocalTensor>();
      tensor->name = "t";
      tensor->signature.on_board = here;
      const auto ticket = table.insert(tensor);
      ASSERT_TRUE(ticket.ok());
      EXPECT_EQ(ticket->entry, planned && !here ? -1 : 0) << planned << here;
    }
  }
}

}  // namespace
}  // namespace ronde::runtime
