// SPDX-License-Identifier: Apache-2.0
// Prepared operations beside the ordinary ones: the same bits, no traffic of the coordinator, and
// what is said where ranks differ, stay away or die.
#include "runtime/engine/prepared.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using base::Operation;
using base::ReduceOp;
using ::testing::HasSubstr;

template <typename T>
Submission prepared_of(Operation operation, const std::string& name, std::vector<T>& data,
                       base::DType dtype, ReduceOp op = ReduceOp::kSum) {
  Submission made;
  made.name = name;
  made.signature.operation = operation;
  made.signature.dtype = dtype;
  made.signature.op = op;
  if (operation != Operation::kBarrier) {
    made.signature.shape = {std::ssize(data)};
    made.views.front().input = reinterpret_cast<const std::byte*>(data.data());
    made.views.front().output =
        operation == Operation::kAllgather ? nullptr : reinterpret_cast<std::byte*>(data.data());
  }
  return made;
}

Submission prepared_sum(const std::string& name, std::vector<float>& data,
                        ReduceOp op = ReduceOp::kSum) {
  return prepared_of(Operation::kAllreduce, name, data, base::DType::kF32, op);
}

std::unique_ptr<Prepared> prepare(const testing::EnginePtr& engine, Submission submission) {
  auto made = Prepared::make(engine, std::move(submission));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

void expect_ok(const base::Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

void with_engines(int ranks, const std::function<void(int, const testing::EnginePtr&)>& body,
                  const testing::EngineOptions& options = {}) {
  const auto engines = testing::open_engines(ranks, options);
  testing::on_ranks(ranks, [&](int rank) {
    const testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    body(rank, engine);
    expect_ok(engine->close());
  });
}

float value_at(int rank, int call, std::size_t i) {
  return 1.0F / static_cast<float>(3 + rank * 7 + call) + static_cast<float>(i) * 0.1F;
}

TEST(PreparedOperations, HaveTheBitsOfOrdinaryOnes) {
  for (const int ranks : {1, 2, 3, 5}) {
    with_engines(ranks, [&](int rank, const testing::EnginePtr& engine) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{12},
                                     std::size_t{13}, std::size_t{1024}, std::size_t{1025}}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
          std::vector<float> data(size);
          std::vector<float> other(size);
          const auto made = prepare(engine, prepared_sum("sum", data, op));
          ASSERT_NE(made, nullptr);
          for (int call = 0; call < 5; ++call) {
            for (std::size_t i = 0; i < size; ++i) data[i] = other[i] = value_at(rank, call, i);
            expect_ok(made->run());
            const auto work = engine->submit(prepared_sum("other", other, op));
            ASSERT_TRUE(work.ok());
            expect_ok(engine->wait(**work));
            EXPECT_EQ(data, other) << ranks << " ranks, " << size;
          }
        }
      }
    });
  }
}

TEST(PreparedOperations, SendNothingThroughTheCoordinator) {
  with_engines(3, [](int rank, const testing::EnginePtr& engine) {
    std::vector<float> data{static_cast<float>(rank)};
    const auto made = prepare(engine, prepared_sum("sum", data));
    std::vector<float> none;
    const auto barrier =
        prepare(engine, prepared_of(Operation::kBarrier, "meet", none, base::DType::kF32));
    if (engine->size() == engine->local_size()) {
      EXPECT_TRUE(made->has_lines() && barrier->has_lines());
    }
    expect_ok(barrier->run());
    const Statistics before = engine->statistics();
    for (int call = 0; call < 1000; ++call) {
      data[0] = static_cast<float>(rank + call);
      expect_ok(made->run());
      ASSERT_EQ(data[0], static_cast<float>(3 + 3 * call));
      expect_ok(barrier->run());
    }
    if (!made->has_lines()) return;
    const Statistics after = engine->statistics();
    expect_ok(barrier->run());  // nobody has closed before
    EXPECT_EQ(after.batches, before.batches);
    EXPECT_EQ(after.full_requests, before.full_requests);
    EXPECT_EQ(after.planned_requests, before.planned_requests);
    EXPECT_EQ(after.control_bytes, before.control_bytes);
  });
}

TEST(PreparedOperations, BroadcastGatherAndScatter) {
  with_engines(3, [](int rank, const testing::EnginePtr& engine) {
    std::vector<std::int32_t> data(20);
    Submission rooted = prepared_of(Operation::kBroadcast, "weights", data, base::DType::kI32);
    rooted.signature.root = 2;
    const auto broadcast = prepare(engine, rooted);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(rank) * 4);  // rank 0 has none
    const auto gather =
        prepare(engine, prepared_of(Operation::kAllgather, "rows", rows, base::DType::kI32));
    std::vector<std::int32_t> parts(7);  // 3, 2, 2
    std::vector<std::int32_t> share(rank == 0 ? 3 : 2);
    Submission scattered =
        prepared_of(Operation::kReduceScatter, "parts", parts, base::DType::kI32);
    scattered.views.front().output = reinterpret_cast<std::byte*>(share.data());
    const auto scatter = prepare(engine, scattered);
    for (int call = 0; call < 200; ++call) {
      for (auto& one : data) one = rank * 1000 + call;
      expect_ok(broadcast->start());
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = rank * 100 + call;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        parts[i] = static_cast<std::int32_t>(i) * (rank + call);
      }
      expect_ok(scatter->start());  // in any order between start() and wait()
      expect_ok(gather->run());
      expect_ok(scatter->wait());
      expect_ok(broadcast->wait());
      EXPECT_THAT(data, ::testing::Each(2000 + call));
      const auto all = gather->gathered();
      ASSERT_TRUE(all.ok());
      EXPECT_EQ(all->shape, (base::Shape{12}));
      const auto* const numbers = reinterpret_cast<const std::int32_t*>(all->data);
      for (int i = 0; i < 12; ++i) EXPECT_EQ(numbers[i], (i < 4 ? 100 : 200) + call);
      const int first = rank == 0 ? 0 : rank == 1 ? 3 : 5;
      for (std::size_t i = 0; i < share.size(); ++i) {
        EXPECT_EQ(share[i], (first + static_cast<int>(i)) * (3 + 3 * call));
      }
    }
  });
}

TEST(PreparedOperations, WaitForASleeper) {
  with_engines(2, [](int rank, const testing::EnginePtr& engine) {
    std::vector<float> data{1.0F};
    const auto made = prepare(engine, prepared_sum("late", data));
    for (int call = 0; call < 20; ++call) {
      if (rank == call % 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      data[0] = 1.0F;
      expect_ok(made->run());
      EXPECT_EQ(data[0], 2.0F);
    }
  });
}

TEST(PreparedOperations, NameRanksThatDiffer) {
  with_engines(2, [](int rank, const testing::EnginePtr& engine) {
    std::vector<float> data(rank == 0 ? 3 : 4);
    const auto made = Prepared::make(engine, prepared_sum("loss", data));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.status().code(), base::Code::kMismatch);
    EXPECT_THAT(
        made.status().message(),
        ::testing::AllOf(HasSubstr("'loss'"), HasSubstr("rank 0 submitted"), HasSubstr("[4]")));
  });
}

TEST(PreparedOperations, RefuseCallsOutOfTurn) {
  const testing::EnginePtr engine = testing::open_engines(1).front();
  {
    std::vector<float> data{1.0F};
    const auto made = prepare(engine, prepared_sum("sum", data));
    EXPECT_THAT(made->wait().message(), HasSubstr("wait() without a call"));
    EXPECT_THAT(made->gathered().status().message(), HasSubstr("memory of its request"));
    expect_ok(made->start());
    EXPECT_THAT(made->start().message(), HasSubstr("start() is called twice"));
    expect_ok(made->wait());
    Submission rows = prepared_of(Operation::kAllToAll, "rows", data, base::DType::kF32);
    EXPECT_EQ(Prepared::make(engine, rows).status().code(), base::Code::kUnsupported);
    expect_ok(engine->close());
    EXPECT_EQ(made->run().code(), base::Code::kClosed);
  }
}

TEST(PreparedOperations, GiveTheirLinesBack) {
  testing::EngineOptions options;
  options.environment = {"RONDE_BUFFER_BYTES=65536"};
  with_engines(
      2,
      [](int /*rank*/, const testing::EnginePtr& engine) {
        std::vector<float> data(1024);
        for (int i = 0; i < 50; ++i) {  // of 16 KiB each
          const auto made = prepare(engine, prepared_sum("sum", data));
          EXPECT_EQ(made->has_lines(), engine->size() == engine->local_size());
          expect_ok(made->run());
        }
        // Beyond what there is room for they take the ordinary way.
        std::vector<std::unique_ptr<Prepared>> many;
        for (int i = 0; i < 8; ++i) {
          many.push_back(prepare(engine, prepared_sum("sum " + std::to_string(i), data)));
          for (const auto& one : many) expect_ok(one->run());
        }
        EXPECT_FALSE(many.back()->has_lines());
      },
      options);
}

// What others have posted stays there when they have gone, also the leader, whose arena it is.
TEST(PreparedOperations, EndAfterTheOthersHaveClosedTheirEngines) {
  auto engines = testing::open_engines(2);
  std::atomic<bool> gone{false};
  testing::on_ranks(2, [&](int rank) {
    testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    std::vector<float> data{static_cast<float>(rank)};
    auto made = prepare(engine, prepared_sum("last", data));
    const bool in_lines = made->has_lines();
    expect_ok(made->start());
    while (rank == 1 && in_lines && !gone) std::this_thread::yield();
    expect_ok(made->wait());
    EXPECT_EQ(data[0], 1.0F);
    made.reset();
    expect_ok(engine->close());
    engine.reset();
    gone = true;
  });
}

// The rank may wait in a line, asleep or not, or come to it later.
TEST(PreparedOperations, EndByNameWhereARankJoins) {
  for (const int pause_ms : {0, 30}) {
    with_engines(3, [&](int rank, const testing::EnginePtr& engine) {
      std::vector<float> data{1.0F};
      const auto made = prepare(engine, prepared_sum("loss", data));
      expect_ok(made->run());
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        const auto joined = engine->join(true);
        ASSERT_TRUE(joined.ok());
        expect_ok(engine->wait(**joined));
      } else {
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2 * pause_ms));
        const base::Status ended = made->run();
        if (made->has_lines()) {
          EXPECT_THAT(ended.message(), HasSubstr("prepared 'loss' has ended: rank 2 has joined"));
          EXPECT_EQ(ended.rank(), 2);
        } else {
          expect_ok(ended);  // the ordinary operation goes on without it
        }
        const auto work = engine->submit(prepared_sum("ordinary", data));
        ASSERT_TRUE(work.ok());
        expect_ok(engine->wait(**work));
        const auto joined = engine->join(true);
        ASSERT_TRUE(joined.ok());
        expect_ok(engine->wait(**joined));
      }
      if (made->has_lines()) {
        EXPECT_THAT(made->run().message(), HasSubstr("has joined, and runs nothing"));
      }
      data[0] = 1.0F;
      const auto again = prepare(engine, prepared_sum("loss", data));
      expect_ok(again->run());
      EXPECT_EQ(data[0], 3.0F);
    });
  }
}

TEST(PreparedOperations, FailWithTheJobWhereARankStaysAway) {
  testing::EngineOptions options;
  // Longer than a busy machine may keep a rank from coming to what it does not stay away from.
  options.environment = {"RONDE_STALL_WARNING_SECONDS=0.05", "RONDE_STALL_FAILURE_SECONDS=4"};
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0}).value();
  const auto engines = testing::open_engines(2, options);
  std::atomic<bool> failed{false};
  testing::on_ranks(2, [&](int rank) {
    const testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    std::vector<float> data{1.0F};
    const auto made = prepare(engine, prepared_sum("loss", data));
    if (rank == 0) {
      const base::Status late = made->run();
      EXPECT_EQ(late.code(), base::Code::kDeadline);
      EXPECT_THAT(late.message(), ::testing::AllOf(HasSubstr("'loss'"), HasSubstr("rank 1")));
      failed = true;
    } else {
      EXPECT_TRUE(testing::eventually([&] { return failed.load(); }));
      EXPECT_THAT(made->run().message(), HasSubstr("'loss'"));
    }
    EXPECT_FALSE(engine->close().ok());
  });
}

// After the deadline of a request the operation has ended on all ranks, on one that comes too late
// in that call, and the job goes on. So does one that has a deadline and keeps to it.
TEST(PreparedOperations, EndOnAllRanksAtADeadlineOfTheirOwn) {
  // Longer than a busy machine may keep a rank from a call that it does not come too late in.
  constexpr auto kDeadline = std::chrono::seconds(4);
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 0}).value();
  std::atomic<bool> given_up{false};
  with_engines(
      3,
      [&](int rank, const testing::EnginePtr& engine) {
        std::vector<float> data{1.0F};
        Submission timed = prepared_sum("loss", data);
        if (rank == 0) timed.deadline = kDeadline;
        const auto made = prepare(engine, timed);
        ASSERT_TRUE(made->has_lines());
        expect_ok(made->run());
        EXPECT_TRUE(testing::eventually([&] { return rank != 2 || given_up; }));
        const auto begin = std::chrono::steady_clock::now();
        const base::Status late = made->run();
        EXPECT_EQ(late.code(), base::Code::kDeadline);
        if (rank == 0) {
          given_up = true;
          EXPECT_GE(std::chrono::steady_clock::now() - begin, kDeadline);
          EXPECT_THAT(late.message(),
                      ::testing::AllOf(HasSubstr("prepared 'loss' has waited for rank 2"),
                                       HasSubstr("This is the deadline of the request")));
          EXPECT_EQ(late.rank(), 2);
        } else {
          EXPECT_THAT(late.message(), HasSubstr("'loss' has ended: rank 0 has waited until"));
          EXPECT_EQ(late.rank(), 0);
        }
        EXPECT_THAT(made->run().message(), HasSubstr("rank 0 has waited until the deadline"));
        const auto again = prepare(engine, prepared_sum("loss", data));
        data[0] = 1.0F;
        expect_ok(again->run());
        EXPECT_EQ(data[0], 3.0F);
      },
      options);
}

// The root waits for the reader that gives up, and the other reader for the root alone.
TEST(PreparedOperations, OfWhichAReaderGivesUpEndForTheOtherReaderToo) {
  std::atomic<bool> given_up{false};
  with_engines(3, [&](int rank, const testing::EnginePtr& engine) {
    std::vector<float> data{1.0F};
    Submission rooted = prepared_of(Operation::kBroadcast, "weights", data, base::DType::kF32);
    if (rank == 1) rooted.deadline = std::chrono::milliseconds(50);
    const auto made = prepare(engine, rooted);
    if (!made->has_lines()) return;
    EXPECT_TRUE(testing::eventually([&] { return rank != 0 || given_up; }));
    base::Status ended;
    for (int call = 0; call < 4 && ended.ok(); ++call) ended = made->run();
    if (rank == 1) given_up = true;
    EXPECT_EQ(ended.code(), base::Code::kDeadline) << ended.message();
    EXPECT_TRUE(rank == 1 || ended.rank() == 1);
  });
}

// The weight goes with the data of the ordinary way alone, however small the operation is.
TEST(Prepared, AveragesByWeightsAreThoseOfTheOrdinaryOperation) {
  with_engines(3, [](int rank, const testing::EnginePtr& engine) {
    std::vector<float> data(2, static_cast<float>(rank));
    Submission average = prepared_sum("mean", data, ReduceOp::kAverage);
    average.signature.weighted = true;
    average.weights = {rank == 2 ? 3.0 : 1.0};
    const auto made = prepare(engine, std::move(average));
    ASSERT_NE(made, nullptr);
    expect_ok(made->run());
    EXPECT_FLOAT_EQ(data[0], (0.0F + 1.0F + 3 * 2.0F) / 5.0F);
  });
}

// The engine writes into the caller's memory until its call has ended.
TEST(Prepared, OneThatIsLetGoInACallEndsItFirst) {
  with_engines(2, [](int rank, const testing::EnginePtr& engine) {
    std::vector<float> data(100'000, 1.0F);
    auto made = prepare(engine, prepared_sum("large", data));
    ASSERT_FALSE(made->has_lines());
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect_ok(made->start());
    made.reset();
    EXPECT_EQ(data[0], 2.0F);
    EXPECT_EQ(data.back(), 2.0F);
  });
}

}  // namespace
}  // namespace ronde::runtime
