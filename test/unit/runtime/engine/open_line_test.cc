// SPDX-License-Identifier: Apache-2.0
// Lines for calls whose form may differ: the bits of ordinary operations where all ranks make equal
// calls, and otherwise the same answer on all of them.
#include "runtime/engine/open_line.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using base::Operation;
using base::ReduceOp;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

using LineBody = std::function<void(int, const testing::EnginePtr&, OpenLine&)>;

void with_lines(int ranks, const LineBody& body, const testing::EngineOptions& options = {}) {
  const auto engines = testing::open_engines(ranks, options);
  testing::on_ranks(ranks, [&](int rank) {
    const testing::EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    {
      const auto line = OpenLine::make(engine, "line");
      ASSERT_TRUE(line.ok()) << line.status().message();
      if (*line == nullptr) return;  // the ranks of this test are on several hosts
      body(rank, engine, **line);
    }
    EXPECT_TRUE(engine->close().ok());
  });
}

OpenLine::Call call_on(Operation operation, std::vector<float>& data, std::uint64_t form) {
  OpenLine::Call call;
  call.form = form;
  call.operation = operation;
  call.dtype = base::DType::kF32;
  call.elements = std::ssize(data);
  call.output = reinterpret_cast<std::byte*>(data.data());
  call.input = call.output;
  return call;
}

OpenLine::Met run(OpenLine& line, const OpenLine::Call& call) {
  const base::Status started = line.start(call);
  EXPECT_TRUE(started.ok()) << started.message();
  const auto met = line.wait(seconds(30));
  EXPECT_TRUE(met.ok()) << met.status().message();
  return met.ok() ? *met : OpenLine::Met::kNotYet;
}

TEST(OpenLines, HaveTheBitsOfOrdinaryOperations) {
  for (const int ranks : {1, 2, 3, 5}) {
    with_lines(ranks, [&](int rank, const testing::EnginePtr& engine, OpenLine& line) {
      for (const std::size_t size : {0U, 1U, 12U, 13U, 1024U}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct}) {
          std::vector<float> data(size);
          for (std::size_t i = 0; i < size; ++i) {
            data[i] = 1.0F / static_cast<float>(3 + rank * 7) + static_cast<float>(i) * 0.1F;
          }
          std::vector<float> other = data;
          OpenLine::Call call = call_on(Operation::kAllreduce, data, size);
          call.op = op;
          EXPECT_EQ(run(line, call), OpenLine::Met::kEqual);
          Submission made;
          made.name = "other";
          made.signature.operation = Operation::kAllreduce;
          made.signature.op = op;
          made.signature.shape = {std::ssize(other)};
          made.views.front().output = reinterpret_cast<std::byte*>(other.data());
          made.views.front().input = made.views.front().output;
          const auto work = engine->submit(std::move(made));
          ASSERT_TRUE(work.ok()) << work.status().message();
          EXPECT_TRUE(engine->wait(**work).ok());
          EXPECT_EQ(data, other) << ranks << " ranks, " << size;
        }
      }
    });
  }
}

TEST(OpenLines, BroadcastFromAnyRankAndMeet) {
  with_lines(3, [](int rank, const testing::EnginePtr& /*engine*/, OpenLine& line) {
    std::vector<float> none;
    for (int round = 0; round < 30; ++round) {
      std::vector<float> data{static_cast<float>(rank == round % 3 ? round : -1)};
      OpenLine::Call call = call_on(Operation::kBroadcast, data, 1);
      call.root = round % 3;
      EXPECT_EQ(run(line, call), OpenLine::Met::kEqual);
      EXPECT_EQ(data[0], static_cast<float>(round));
      EXPECT_EQ(run(line, call_on(Operation::kBarrier, none, 2)), OpenLine::Met::kEqual);
    }
  });
}

TEST(OpenLines, TellAllRanksThatTheirCallsDifferAndGoOn) {
  with_lines(3, [](int rank, const testing::EnginePtr& /*engine*/, OpenLine& line) {
    for (int odd = 0; odd < 3; ++odd) {
      std::vector<float> data(rank == odd ? 5 : 4, 1.0F);
      const auto before = data;
      EXPECT_EQ(run(line, call_on(Operation::kAllreduce, data, data.size())),
                OpenLine::Met::kDiffers);
      EXPECT_EQ(data, before);
      std::vector<float> same(4, 1.0F);
      EXPECT_EQ(run(line, call_on(Operation::kAllreduce, same, 4)), OpenLine::Met::kEqual);
      EXPECT_EQ(same.back(), 3.0F);
    }
  });
}

TEST(OpenLines, WaitNoLongerThanAskedAndThenGoOn) {
  std::atomic<int> slices{0};  // in which rank 0 has waited for the other one
  with_lines(2, [&](int rank, const testing::EnginePtr& /*engine*/, OpenLine& line) {
    std::vector<float> data{1.0F};
    if (rank == 1) {
      EXPECT_TRUE(testing::eventually([&] { return slices > 1; }));
    }
    ASSERT_TRUE(line.start(call_on(Operation::kAllreduce, data, 1)).ok());
    for (auto met = line.wait(milliseconds(1)); met.ok() && *met == OpenLine::Met::kNotYet;
         met = line.wait(milliseconds(1))) {
      if (rank == 0) ++slices;
    }
    EXPECT_EQ(data[0], 2.0F);
    const auto nothing = line.wait(milliseconds(1));
    EXPECT_THAT(nothing.status().message(), HasSubstr("nothing is started"));
  });
}

TEST(OpenLines, RefuseOnOneRankWhatCannotBeAndTakeAnotherCall) {
  with_lines(2, [](int rank, const testing::EnginePtr& /*engine*/, OpenLine& line) {
    std::vector<float> large(1025);
    std::vector<float> data{1.0F};
    if (rank == 0) {
      const auto refused = [&](const OpenLine::Call& call, const char* text) {
        EXPECT_THAT(line.start(call).message(), HasSubstr(text));
      };
      refused(call_on(Operation::kAllreduce, large, 1), "up to 4096 bytes");
      refused(call_on(Operation::kAllgather, data, 1), "only allreduces");
      refused(call_on(Operation::kReduceScatter, data, 1), "only allreduces");
      OpenLine::Call call = call_on(Operation::kAllreduce, data, 1);
      call.output = nullptr;
      refused(call, "null pointer");
      call = call_on(Operation::kAllreduce, data, 1);
      call.op = ReduceOp::kBitAnd;
      refused(call, "not defined");
      call = call_on(Operation::kBroadcast, data, 1);
      call.root = 2;
      refused(call, "root");
    }
    EXPECT_EQ(run(line, call_on(Operation::kAllreduce, data, 1)), OpenLine::Met::kEqual);
    EXPECT_EQ(data[0], 2.0F);
    EXPECT_TRUE(line.start(call_on(Operation::kAllreduce, data, 2)).ok());
    EXPECT_THAT(line.start(call_on(Operation::kAllreduce, data, 2)).message(),
                HasSubstr("before the last has ended"));
    EXPECT_TRUE(line.wait(seconds(30)).ok());
  });
}

// It neither waits nor lets the parent's line go.
TEST(OpenLines, InAForkedChildAreInert) {
  with_lines(2, [](int rank, const testing::EnginePtr& engine, OpenLine& line) {
    std::vector<float> data(3, 1.0F);
    const OpenLine::Call call = call_on(Operation::kAllreduce, data, 1);
    ASSERT_EQ(run(line, call), OpenLine::Met::kEqual);
    if (rank == 0) {
      auto other = OpenLine::make(engine, "other").value();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        const bool inert = other->start(call).code() == base::Code::kUnsupported &&
                           other->wait(seconds(1)).status().code() == base::Code::kUnsupported;
        other.reset();
        ::_exit(inert ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      EXPECT_EQ(run(*other, call), OpenLine::Met::kEqual);
    } else {
      const auto other = OpenLine::make(engine, "other").value();
      EXPECT_EQ(run(*other, call), OpenLine::Met::kEqual);
    }
    EXPECT_EQ(data[0], 4.0F);
  });
}

}  // namespace
}  // namespace ronde::runtime
