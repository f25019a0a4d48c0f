// SPDX-License-Identifier: Apache-2.0
// What ends a job with a device, and what does not.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "test/device/device_engines.h"
#include "test/support/operations.h"

namespace ronde::device_test {
namespace {

using base::Code;
using base::Status;
using runtime::Engine;
using runtime::Submission;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::open_engines;
using testing::submit_and_wait;

constexpr std::int64_t kFailingElements = 100;

class DeviceFailure : public ::testing::Test {
 protected:
  ~DeviceFailure() override { ::unsetenv("RONDE_TOY"); }

  static std::vector<float> all(float value) { return std::vector<float>(kFailingElements, value); }
};

TEST_F(DeviceFailure, OfADeviceIsThatOfTheJob) {
  ::setenv("RONDE_TOY", "broken", 1);
  const auto engines = open_engines(3, options_of_device());
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(all(1.0F));
    const auto first = engine.submit(device_allreduce("t", memory, kFailingElements));
    if (!first.ok()) {  // the others were faster
      EXPECT_THAT(first.status().message(), HasSubstr("a wheel has come off"));
      return;
    }
    const Status status = engine.wait(**first);
    EXPECT_EQ(status.code(), Code::kTransport);
    EXPECT_THAT(status.message(),
                HasSubstr("rank 0 failed in batch 1: allreduce of 't': the device "
                          "(toy) failed: a wheel has come off"));
    const DeviceStream stream;
    EXPECT_FALSE(engine.let_stream_wait(**first, stream.get()).ok());
    std::vector<float> host(10, 1.0F);
    EXPECT_THAT(submit_and_wait(engine, testing::allreduce_of("host", host)).message(),
                HasSubstr("a wheel has come off"));
  });
  on_ranks(3,
           [&](int rank) { EXPECT_FALSE(engines[static_cast<std::size_t>(rank)]->close().ok()); });
}

// Rank 1 cannot tell any more what it was given, which is not the fault of what it was given.
void expect_dead(const Submission& on_rank_1, const std::string& text) {
  ::setenv("RONDE_TOY", "dead on rank 1", 1);
  const auto engines = open_engines(3, options_of_device());
  on_ranks(3, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(std::vector<float>(kFailingElements, 1.0F));
    const Status status = submit_and_wait(
        engine, rank == 1 ? on_rank_1 : device_allreduce("t", memory, kFailingElements));
    EXPECT_EQ(status.code(), Code::kTransport);
    EXPECT_EQ(status.message(), text);
    // Not what the device says about this one: that is no cause.
    const auto deadline = std::chrono::steady_clock::now() + kHang;
    Status later;
    do {
      later = submit_and_wait(engine, device_allreduce("later", memory, kFailingElements));
    } while (later.message().find("'later'") != std::string::npos &&
             std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(later.code(), Code::kTransport);
    EXPECT_EQ(later.message(), text);
  });
  on_ranks(3, [&](int rank) {
    EXPECT_EQ(engines[static_cast<std::size_t>(rank)]->close().message(), text);
  });
}

TEST_F(DeviceFailure, ADeviceThatCannotTellWhoseMemoryItIsEndsTheJob) {
  const DeviceMemory memory(all(1.0F));
  expect_dead(device_allreduce("t", memory, kFailingElements),
              "'t': the tensor: the device (toy) cannot tell whose memory this is: the battery is "
              "empty");
}

TEST_F(DeviceFailure, ADeviceThatCannotTellWhatAStreamIsEndsTheJob) {
  expect_dead(device_barrier("b"),
              "'b': the device (toy) cannot tell whether the stream can be used: the battery is "
              "empty");
}

TEST_F(DeviceFailure, WhatNoDeviceCanDoFailsAlone) {
  ::setenv("RONDE_TOY", "no max", 1);
  testing::run_job(3, options_of_device(), [](int rank, Engine& engine) {
    const DeviceMemory memory(all(static_cast<float>(rank)));
    Submission submission = device_allreduce("t", memory, kFailingElements);
    submission.signature.op = base::ReduceOp::kMax;
    const Status refused = submit_and_wait(engine, submission);
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_EQ(refused.message(), "'t': the device (toy) refused a batch: a toy knows no max");
    const Status status = submit_and_wait(engine, device_allreduce("t", memory, kFailingElements));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(memory.values<float>(), all(3.0F));
  });
}

// A stream that does not come to the tensor, and a deadline.
void expect_late(const std::string& toy) {
  ::setenv("RONDE_TOY", toy.c_str(), 1);
  testing::EngineOptions options = options_of_device();
  options.environment.insert(options.environment.end(), {"RONDE_STALL_WARNING_SECONDS=0.05",
                                                         "RONDE_STALL_FAILURE_SECONDS=0.2"});
  const auto engines = open_engines(2, options);
  const auto begin = std::chrono::steady_clock::now();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(std::vector<float>(kFailingElements, 1.0F));
    const DeviceStream stream;
    if (rank == 1) Device::instance().kit->delay(stream.get(), 600);
    const auto work = engine.submit(device_allreduce("t", memory, kFailingElements, stream.get()));
    ASSERT_TRUE(work.ok());
    const Status status = engine.wait(**work);
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_THAT(status.message(), HasSubstr("'t' has waited"));
    EXPECT_THAT(status.message(), HasSubstr("in batch 1: allreduce of 't'"));
    EXPECT_FALSE(engine.close().ok());
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kHang);
}

TEST_F(DeviceFailure, DeadlinesHoldForDevices) { expect_late(""); }

TEST_F(DeviceFailure, DeadlinesHoldThroughHostMemory) { expect_late("staged"); }

TEST_F(DeviceFailure, AWaitOfAStreamEndsWithTheJob) {
  testing::EngineOptions options = options_of_device();
  options.environment.insert(options.environment.end(), {"RONDE_STALL_WARNING_SECONDS=0.05",
                                                         "RONDE_STALL_FAILURE_SECONDS=0.2"});
  const auto engines = open_engines(2, options);
  // Rank 1 never submits it.
  const DeviceMemory memory(all(1.0F));
  const DeviceStream stream;
  const auto work = engines[0]->submit(device_allreduce("t", memory, kFailingElements));
  ASSERT_TRUE(work.ok());
  const Status status = engines[0]->let_stream_wait(**work, stream.get());
  EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("for rank 1 (host "));
  on_ranks(2, [&](int rank) { engines[static_cast<std::size_t>(rank)]->close().ignore(); });
}

// The batch is with the device, which cannot put it into a stream yet.
TEST_F(DeviceFailure, AWaitOfAStreamForWhatDoesNotBeginEndsWithTheJob) {
  ::setenv("RONDE_TOY", "late streams", 1);
  testing::EngineOptions options = options_of_device();
  options.environment.insert(options.environment.end(), {"RONDE_STALL_WARNING_SECONDS=0.05",
                                                         "RONDE_STALL_FAILURE_SECONDS=0.2"});
  const auto engines = open_engines(2, options);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory memory(all(1.0F));
    const DeviceStream before;
    const DeviceStream after;
    Device::instance().kit->delay(before.get(), 600);
    const auto work = engine.submit(device_allreduce("t", memory, kFailingElements, before.get()));
    ASSERT_TRUE(work.ok());
    const Status status = engine.let_stream_wait(**work, after.get());
    EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("'t' has waited"));
    EXPECT_FALSE(engine.close().ok());
  });
}

TEST_F(DeviceFailure, ClosingWaitsForWhatIsUnderWay) {
  for (const char* const toy : {"", "staged"}) {
    ::setenv("RONDE_TOY", toy, 1);
    const auto engines = open_engines(2, options_of_device());
    on_ranks(2, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      const DeviceMemory memory(all(1.0F));
      const DeviceStream stream;
      if (rank == 0) Device::instance().kit->delay(stream.get(), 100);
      const auto work =
          engine.submit(device_allreduce("t", memory, kFailingElements, stream.get()));
      ASSERT_TRUE(work.ok());
      const Status closed = engine.close();
      EXPECT_TRUE(closed.ok()) << closed.message();
      EXPECT_TRUE((*work)->completion.done());
      EXPECT_EQ(memory.values<float>(), all(2.0F));
      // Later than that there is no device any more.
      EXPECT_FALSE(engine.submit(device_allreduce("late", memory, kFailingElements)).ok());
      EXPECT_TRUE(engine.let_stream_wait(**work, stream.get()).ok());
    });
  }
}

TEST_F(DeviceFailure, ResultsOutliveTheEngine) {
  auto engines = open_engines(2, options_of_device());
  std::vector<Engine::WorkPtr> works(2);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const DeviceMemory mine(all(static_cast<float>(rank)));
    const auto work = engine.submit(
        device_vector("g", runtime::Operation::kAllgather, kFailingElements, mine.get(), nullptr));
    ASSERT_TRUE(work.ok());
    ASSERT_TRUE(engine.wait(**work).ok());
    works[static_cast<std::size_t>(rank)] = *work;
    EXPECT_TRUE(engine.close().ok());
  });
  engines.clear();
  std::vector<float> expected = all(0.0F);
  expected.insert(expected.end(), kFailingElements, 1.0F);
  for (const auto& work : works) EXPECT_EQ(output_of(*work), expected);
}

}  // namespace
}  // namespace ronde::device_test
