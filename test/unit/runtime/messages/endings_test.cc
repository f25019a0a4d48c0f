// SPDX-License-Identifier: Apache-2.0
// How messages end that nobody sends or receives: by the close of one rank or both, by the failure
// of the job, and by the deadlines; and that the memory is the caller's again then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/messages/message.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using ronde::testing::EngineOptions;
using ronde::testing::EnginePtr;
using ronde::testing::eventually;
using ronde::testing::on_ranks;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The two ranks share a host, or each has its own.
class MessageEndings : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<EnginePtr> engines_with(std::vector<std::string> environment = {}) {
    EngineOptions options;
    options.environment = std::move(environment);
    options.shape =
        base::JobShape::of_leaders(std::vector<std::int32_t>{0, GetParam() - 1}).value();
    return ronde::testing::open_engines(2, options);
  }
};
INSTANTIATE_TEST_SUITE_P(Hosts, MessageEndings, ::testing::Values(1, 2));

// Bytes of this rank, and a request for them.
struct Bytes {
  Bytes(int rank, std::int64_t tag, std::size_t size) : bytes(size, std::byte{7}) {
    request.rank = rank;
    request.tag = tag;
    request.count = std::ssize(bytes);
    request.memory = bytes.data();
  }
  std::vector<std::byte> bytes;
  MessageRequest request;
};

constexpr std::size_t kSmall = 8;
constexpr std::size_t kLarge = std::size_t{1} << 20;

TEST_P(MessageEndings, AReceiveEndsByNameWhenTheOtherRankCloses) {
  const auto engines = engines_with();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      Bytes mine(1, 5, kSmall);
      auto work = engine.receive(mine.request);
      ASSERT_TRUE(work.ok());
      const Status status = engine.wait(**work);
      EXPECT_EQ(status.code(), Code::kClosed);
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("tag 5 from rank 1 to rank 0 (8 of u8)"),
                        HasSubstr("rank 1 has closed its engine without sending it")));
      // One more, which begins after that.
      auto again = engine.receive(mine.request);
      EXPECT_TRUE(!again.ok() || engine.wait(**again).code() == Code::kClosed);
    }
    EXPECT_TRUE(engine.close().ok());
  });
}

TEST_P(MessageEndings, AReceiveInAProcessSetEndsByNameWhenTheOtherRankClosesIt) {
  const auto engines = engines_with();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    const auto set = engine.subset({0, 1}, "both");
    ASSERT_TRUE(set.ok()) << set.status().message();
    if (rank == 0) {
      Bytes mine(1, 5, kSmall);
      auto work = (*set)->receive(mine.request);
      ASSERT_TRUE(work.ok());
      const Status status = (*set)->wait(**work);
      EXPECT_EQ(status.code(), Code::kClosed);
      EXPECT_THAT(status.message(), HasSubstr("rank 1 has closed its engine without sending it"));
    }
    EXPECT_TRUE((*set)->close().ok());
    EXPECT_TRUE(engine.close().ok());
  });
}

TEST_P(MessageEndings, WhatWasSentBeforeTheCloseIsReceived) {
  const auto engines = engines_with();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    Bytes small(1 - rank, 1, kSmall);
    Bytes large(1 - rank, 2, kLarge);
    Engine::WorkPtr work;
    if (rank == 1) {
      EXPECT_TRUE(engine.send(small.request).ok());
      work = engine.send(large.request).value();
    } else {
      std::this_thread::sleep_for(milliseconds(30));  // rank 1 is closing
      for (Bytes* const each : {&large, &small}) {
        auto received = engine.receive(each->request);
        ASSERT_TRUE(received.ok()) << received.status().message();
        const Status status = engine.wait(**received);
        EXPECT_TRUE(status.ok()) << status.message();
      }
    }
    EXPECT_TRUE(engine.close().ok());
    EXPECT_TRUE(work == nullptr || Engine::result(*work).ok());
  });
}

TEST_P(MessageEndings, ALargeSendEndsByNameWhenTheOtherRankCloses) {
  for (const bool closes_first : {false, true}) {
    const auto engines = engines_with();
    on_ranks(2, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      if (rank == 0) {
        if (closes_first) std::this_thread::sleep_for(milliseconds(30));
        Bytes mine(1, 5, kLarge);
        auto work = engine.send(mine.request);
        const Status status = work.ok() ? engine.wait(**work) : work.status();
        EXPECT_EQ(status.code(), Code::kClosed);
        EXPECT_THAT(status.message(), AllOf(HasSubstr("tag 5 from rank 0 to rank 1"),
                                            HasSubstr("rank 1 has closed its engine")));
      } else if (!closes_first) {
        std::this_thread::sleep_for(milliseconds(30));
      }
      EXPECT_TRUE(engine.close().ok());
    });
  }
}

TEST_P(MessageEndings, CloseFailsByNameWhatIsLeft) {
  const auto engines = engines_with({"RONDE_SHUTDOWN_TIMEOUT_SECONDS=0.2"});
  std::latch has_closed(1);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      Bytes out(1, 6, kLarge);
      Bytes in(1, 7, kSmall);
      auto sent = engine.send(out.request);
      auto received = engine.receive(in.request);
      ASSERT_TRUE(sent.ok() && received.ok());
      const Status closed = engine.close();
      has_closed.count_down();
      EXPECT_EQ(closed.code(), Code::kClosed) << closed.message();
      EXPECT_THAT(closed.message(), HasSubstr("2 operations failed while the engine closed"));
      for (const auto& [work, tag] : {std::pair(*sent, "tag 6"), std::pair(*received, "tag 7")}) {
        ASSERT_TRUE(work->completion.done());
        EXPECT_THAT(Engine::result(*work).message(),
                    AllOf(HasSubstr(tag), HasSubstr("RONDE_SHUTDOWN_TIMEOUT_SECONDS")));
      }
    } else {
      EXPECT_TRUE(eventually([&] { return has_closed.try_wait(); }));
      Bytes in(0, 6, kLarge);  // which has been taken back
      auto received = engine.receive(in.request);
      const Status status = received.ok() ? engine.wait(**received) : received.status();
      EXPECT_EQ(status.code(), Code::kClosed) << status.message();
      engine.close().ignore();
    }
  });
}

TEST_P(MessageEndings, TheFailureOfTheJobEndsAll) {
  const auto engines =
      engines_with({"RONDE_STALL_FAILURE_SECONDS=0.3", "RONDE_STALL_WARNING_SECONDS=0.1"});
  ::testing::internal::CaptureStderr();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    Bytes out(1 - rank, 1, kLarge);
    Bytes in(1 - rank, 2, kSmall);
    auto sent = engine.send(out.request);
    auto received = engine.receive(in.request);
    ASSERT_TRUE(sent.ok() && received.ok());
    for (const auto& work : {*sent, *received}) {
      const Status status = engine.wait(*work);
      EXPECT_EQ(status.code(), Code::kDeadline) << status.message();
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("the message with tag"), HasSubstr("has waited for"),
                        HasSubstr("RONDE_STALL_FAILURE_SECONDS")));
    }
    EXPECT_EQ(engine.send(out.request).status().code(), Code::kDeadline);
    EXPECT_FALSE(engine.close().ok());
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("tag 1 from rank 0 to rank 1"),
                    HasSubstr("rank 1 has not received it"), HasSubstr("rank 1 has not sent it")));
}

TEST_P(MessageEndings, WhatNobodyHasReceivedIsNamedAtTheClose) {
  const auto engines = engines_with();
  ::testing::internal::CaptureStderr();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    Bytes lost(1 - rank, 3, kSmall);
    Bytes got(1 - rank, 4, kSmall);
    if (rank == 0) {
      EXPECT_TRUE(engine.send(lost.request).ok());
      EXPECT_TRUE(engine.send(lost.request).ok());
      EXPECT_TRUE(engine.send(got.request).ok());
    } else {
      const auto work = engine.receive(got.request);
      ASSERT_TRUE(work.ok());
      EXPECT_TRUE(engine.wait(**work).ok());
    }
    EXPECT_TRUE(engine.close().ok());
  });
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("the message with tag 3 from rank 0 to rank 1 (8 of u8): rank 1 has closed its "
                "engine without receiving it, as 1 more"));
}

// A receive that is in flight keeps rank 1 from the end of its close meanwhile.
TEST_P(MessageEndings, ASmallOneThatComesAfterItsReceiverHasShutFailsTheSendersClose) {
  const auto engines = engines_with();
  ::testing::internal::CaptureStderr();
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    Bytes lost(1 - rank, 3, kSmall);
    Bytes awaited(1 - rank, 4, kSmall);
    if (rank == 1) {
      ASSERT_TRUE(engine.receive(awaited.request).ok());
      EXPECT_TRUE(engine.close().ok());
      return;
    }
    // Until rank 1 has shut, which ends what it will never send.
    Bytes never(1, 5, kSmall);
    const auto work = engine.receive(never.request);
    EXPECT_EQ((work.ok() ? engine.wait(**work) : work.status()).code(), Code::kClosed);
    EXPECT_TRUE(engine.send(lost.request).ok());
    EXPECT_TRUE(engine.send(awaited.request).ok());
    std::this_thread::sleep_for(milliseconds(200));
    const Status closed = engine.close();
    EXPECT_EQ(closed.code(), Code::kClosed) << closed.message();
    EXPECT_THAT(closed.message(),
                HasSubstr("the message with tag 3 from rank 0 to rank 1 (8 of u8): rank 1 has "
                          "closed its engine without receiving it"));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[rank 1] warning: the message with tag 3 from rank 0 to rank 1"));
}

TEST_P(MessageEndings, ItsOwnDeadlineFailsTheJob) {
  for (const bool sends : {false, true}) {
    const auto engines = engines_with();
    std::latch in_flight(1);  // a rank of a job that has failed by then would refuse it
    on_ranks(2, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      Bytes mine(1 - rank, 5, kLarge);
      if (rank == 1) {
        mine.request.tag = 6;
        const auto work = engine.receive(mine.request);
        in_flight.count_down();
        EXPECT_EQ(engine.wait(*work.value()).code(), Code::kDeadline);
      } else {
        in_flight.wait();
        std::this_thread::sleep_for(milliseconds(50));  // until the background thread sleeps
        mine.request.deadline = milliseconds(200);
        const auto work = sends ? engine.send(mine.request) : engine.receive(mine.request);
        // Nobody waits, so nobody but the background thread looks at the time.
        for (int i = 0; i < 100 && !(*work)->completion.done(); ++i) {
          std::this_thread::sleep_for(milliseconds(100));
        }
        ASSERT_TRUE((*work)->completion.done());
        EXPECT_THAT(Engine::result(**work).message(),
                    AllOf(HasSubstr("the message with tag 5 from rank "), HasSubstr("has waited"),
                          HasSubstr("This is the deadline of the message")));
      }
      EXPECT_FALSE(engine.close().ok());
    });
  }
}

TEST_P(MessageEndings, WhatIsGivenUpFailsTheJobByName) {
  const auto engines = engines_with();
  std::latch in_flight(2);  // a rank that has failed by then would refuse it
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    Bytes mine(1 - rank, 8, kSmall);
    auto work = engine.receive(mine.request);
    in_flight.arrive_and_wait();
    ASSERT_TRUE(work.ok());
    if (rank == 0) engine.settle(**work, milliseconds(1));
    const Status status = engine.wait(**work);
    EXPECT_EQ(status.code(), Code::kDeadline);
    EXPECT_THAT(status.message(), HasSubstr("the message with tag 8 from rank 1 to rank 0 (8 of u8)"
                                            " was given up on rank 0"));
    EXPECT_FALSE(engine.close().ok());
  });
}

TEST_P(MessageEndings, ALateReceiverIsNamedAndThenGetsTheMessage) {
  const auto engines = engines_with({"RONDE_STALL_WARNING_SECONDS=0.1"});
  ::testing::internal::CaptureStderr();
  std::latch is_sent(1);
  on_ranks(2, [&](int rank) {
    Engine& engine = *engines[static_cast<std::size_t>(rank)];
    Bytes mine(1 - rank, 9, kLarge);
    if (rank == 1) {
      is_sent.wait();
      std::this_thread::sleep_for(milliseconds(300));
    }
    auto work = rank == 0 ? engine.send(mine.request) : engine.receive(mine.request);
    if (rank == 0) is_sent.count_down();
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE(engine.wait(**work).ok());
    EXPECT_TRUE(engine.close().ok());
  });
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("the message with tag 9 from rank 0 to rank 1 (1048576 of u8) has waited "));
}

TEST_P(MessageEndings, NobodyReadsMemoryThatIsTheCallersAgain) {
  for (int round = 0; round < 20; ++round) {
    const auto engines = engines_with({"RONDE_SHUTDOWN_TIMEOUT_SECONDS=0.05"});
    on_ranks(2, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      auto mine = std::make_unique<Bytes>(1 - rank, 0, 16 * kLarge);
      // The receiver copies while the sender gives up.
      if (rank == 1) std::this_thread::sleep_for(milliseconds(45 + round % 10));
      auto work = rank == 0 ? engine.send(mine->request) : engine.receive(mine->request);
      engine.close().ignore();
      EXPECT_TRUE(!work.ok() || (*work)->completion.done());
      mine.reset();
    });
  }
}

// Two leaders that have no messages of their own close at once, and ranks behind them write to each
// other afterwards.
TEST(MessageEndingsOverHosts, LeadersThatCloseFirstPassOnWhatComesLater) {
  EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 1, 0, 1}).value();
  const std::vector<EnginePtr> engines = ronde::testing::open_engines(4, options);
  on_ranks(4, [&](int rank) {
    const EnginePtr& engine = engines[static_cast<std::size_t>(rank)];
    for (const std::size_t size : {kSmall, kLarge}) {
      if (rank < 2) break;
      std::this_thread::sleep_for(milliseconds(100));
      Bytes message(rank == 2 ? 3 : 2, 1, size);
      if (rank == 3) message.bytes.assign(size, std::byte{9});
      const auto work =
          rank == 3 ? engine->send(message.request) : engine->receive(message.request);
      const Status ended = work.ok() ? engine->wait(**work) : work.status();
      EXPECT_TRUE(ended.ok()) << ended.message();
      EXPECT_EQ(message.bytes.back(), std::byte{9});
    }
    EXPECT_TRUE(engine->close().ok());
  });
}

}  // namespace
}  // namespace ronde::runtime
