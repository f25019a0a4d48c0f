// SPDX-License-Identifier: Apache-2.0
// Messages between engines in one process: every size and way, many in flight, in order, from any
// rank; and those that do not fit, or that nobody sends or receives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/messages/message.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using ronde::testing::EngineOptions;
using ronde::testing::EnginePtr;
using ronde::testing::on_ranks;
using ronde::testing::open_engines;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The ranks in turns on so many hosts.
EngineOptions on_hosts(int ranks, int hosts, std::vector<std::string> environment = {}) {
  EngineOptions options;
  options.environment = std::move(environment);
  std::vector<std::int32_t> leaders;
  for (int rank = 0; rank < ranks; ++rank) leaders.push_back(rank % hosts);
  options.shape = base::JobShape::of_leaders(leaders).value();
  return options;
}

void run_on_one_host(int ranks, const std::function<void(int, Engine&)>& body,
                     std::vector<std::string> environment = {}) {
  ronde::testing::run_job(ranks, on_hosts(ranks, 1, std::move(environment)), body);
}

// On one host, and with the ranks in turns on two.
void run_on_all(int ranks, const std::function<void(int, Engine&)>& body) {
  for (const int hosts : {1, 2}) ronde::testing::run_job(ranks, on_hosts(ranks, hosts), body);
}

template <typename T>
MessageRequest message_with(int rank, std::int64_t tag, std::vector<T>& data) {
  MessageRequest request;
  request.rank = rank;
  request.tag = tag;
  request.dtype = sizeof(T) == 8 ? base::DType::kI64 : base::DType::kF32;
  request.count = std::ssize(data);
  request.memory = reinterpret_cast<std::byte*>(data.data());
  return request;
}

std::vector<float> values(std::size_t count, int seed) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>(i % 8191) + static_cast<float>(seed);
  }
  return data;
}

Status send(Engine& engine, int rank, std::int64_t tag, std::vector<float>& data) {
  const auto work = engine.send(message_with(rank, tag, data));
  return work.ok() ? engine.wait(**work) : work.status();
}

Status receive(Engine& engine, int rank, std::int64_t tag, std::vector<float>& data,
               int* source = nullptr) {
  const auto work = engine.receive(message_with(rank, tag, data));
  if (!work.ok()) return work.status();
  Status status = engine.wait(**work);
  if (source != nullptr) *source = (*work)->message_source;
  return status;
}

void there_and_back(int rank, Engine& engine) {
  for (const std::size_t count : {0UL, 1UL, 8192UL, 8193UL, 100'000UL, 3'000'001UL}) {
    std::vector<float> data = values(count, rank);
    std::vector<float> got(count);
    const int other = 1 - rank;
    if (rank == 0) {
      ASSERT_TRUE(send(engine, other, 5, data).ok());
      const Status back = receive(engine, other, 6, got);
      ASSERT_TRUE(back.ok()) << back.message();
    } else {
      ASSERT_TRUE(receive(engine, other, 5, got).ok());
      ASSERT_TRUE(send(engine, other, 6, data).ok());
    }
    EXPECT_EQ(got, values(count, other)) << count;
  }
}

// So the thread of a leader that sends, or waits, wakes no other one in its process.
TEST(Messages, OfALeaderGoToAnotherHostInTheThreadThatSends) {
  ronde::testing::run_job(2, on_hosts(2, 2), [](int rank, Engine& engine) {
    constexpr int kMessages = 100;
    std::vector<float> data = values(2, 1);
    std::this_thread::sleep_for(milliseconds(100));  // until the background thread sleeps
    const std::uint64_t before = engine.statistics().background_wakes;
    for (int i = 0; i < kMessages && rank == 0; ++i) {
      ASSERT_TRUE(engine.send(message_with(1, 5, data)).ok());
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    if (rank == 0) {
      EXPECT_LT(engine.statistics().background_wakes - before, kMessages / 4U);
    }
    for (int i = 0; i < kMessages && rank == 1; ++i) {
      ASSERT_TRUE(receive(engine, 0, 5, data).ok());
    }
  });
}

TEST(Messages, GoThereAndBackInEverySize) { run_on_all(2, there_and_back); }

// By the numbers of the set, beside the same numbers and tags of the job. Sets open and close again
// and again, more often than an arena has room for their channels.
void in_process_sets(int rank, Engine& engine, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const auto set = engine.subset({1, 2}, "behind");
    ASSERT_TRUE(set.ok()) << set.status().message();
    std::vector<float> mine = values(100'000, rank);
    std::vector<float> theirs(100'000);
    const auto round = engine.receive(message_with((rank + 2) % 3, 5, theirs));
    ASSERT_TRUE(round.ok());
    if (*set != nullptr) there_and_back((*set)->rank(), **set);
    ASSERT_TRUE(send(engine, (rank + 1) % 3, 5, mine).ok());
    ASSERT_TRUE(engine.wait(**round).ok());
    EXPECT_EQ(theirs, values(100'000, (rank + 2) % 3));
    if (*set == nullptr) continue;
    std::vector<float> one(1);
    EXPECT_THAT(send(**set, 2, 1, one).message(),
                AllOf(HasSubstr("process set 'behind'"), HasSubstr("has the ranks 0 to 1")));
    ASSERT_TRUE((*set)->close().ok());
  }
}

TEST(Messages, GoInProcessSets) {
  run_on_one_host(3, [](int rank, Engine& engine) { in_process_sets(rank, engine, 40); });
  ronde::testing::run_job(3, on_hosts(3, 2),
                          [](int rank, Engine& engine) { in_process_sets(rank, engine, 4); });
}

TEST(Messages, ThatDoNotFitInAProcessSetAreNamedByIt) {
  run_on_one_host(2, [](int rank, Engine& engine) {
    const auto set = engine.subset({0, 1}, "both");
    ASSERT_TRUE(set.ok());
    std::vector<float> data(rank == 0 ? 20'000 : 10'000);
    const Status status = rank == 0 ? send(**set, 1, 1, data) : receive(**set, 0, 1, data);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("process set 'both'"), HasSubstr("rank 0 sends 20000 of f32"),
                      HasSubstr("rank 1 receives 10000 of f32")));
    ASSERT_TRUE((*set)->close().ok());
  });
}

TEST(Messages, GoThroughSlots) { run_on_one_host(2, there_and_back, {"RONDE_MESSAGES=slots"}); }

TEST(Messages, GoOutOfAndIntoBuffers) {
  run_on_one_host(2, [](int rank, Engine& engine) {
    constexpr std::int64_t kBytes = 4 << 20;
    auto buffer = engine.allocate(base::Bytes(kBytes));
    ASSERT_TRUE(buffer.ok());
    const std::span<std::byte> bytes = (*buffer)->bytes();
    MessageRequest request;
    request.rank = 1 - rank;
    request.count = kBytes;
    request.memory = bytes.data();
    if (rank == 0) {
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
      auto work = engine.send(request);
      ASSERT_TRUE(work.ok());
      EXPECT_TRUE(engine.wait(**work).ok());
    } else {
      auto work = engine.receive(request);
      ASSERT_TRUE(work.ok());
      EXPECT_TRUE(engine.wait(**work).ok());
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        ASSERT_EQ(bytes[i], static_cast<std::byte>(i % 251)) << i;
      }
    }
  });
}

TEST(Messages, OfOneTagKeepTheirOrderAndOthersOvertake) {
  run_on_all(2, [](int rank, Engine& engine) {
    constexpr int kMessages = 500;
    std::vector<std::vector<float>> data;
    std::vector<Engine::WorkPtr> works;
    for (int i = 0; i < kMessages; ++i) {
      const std::size_t count = i % 7 == 0 ? 9000 : 3;
      data.push_back(rank == 0 ? values(count, i) : std::vector<float>(count));
    }
    for (int i = 0; i < kMessages; ++i) {
      auto& each = data[static_cast<std::size_t>(rank == 0 ? i : kMessages - 1 - i)];
      // The receiver asks for the odd tags last to first.
      const int index = rank == 0 ? i : kMessages - 1 - i;
      auto work = rank == 0 ? engine.send(message_with(1, index, each))
                            : engine.receive(message_with(0, index, each));
      ASSERT_TRUE(work.ok()) << work.status().message();
      works.push_back(*work);
    }
    for (int i = 0; i < kMessages; ++i) {
      std::vector<float> one{static_cast<float>(i)};
      if (rank == 0) {
        ASSERT_TRUE(send(engine, 1, -1, one).ok());
      } else {
        ASSERT_TRUE(receive(engine, 0, -1, one).ok());
        ASSERT_EQ(one.front(), static_cast<float>(i));
      }
    }
    for (const auto& work : works) EXPECT_TRUE(engine.wait(*work).ok());
    for (int i = 0; i < kMessages; ++i) {
      const auto& each = data[static_cast<std::size_t>(i)];
      EXPECT_EQ(each, values(each.size(), i));
    }
  });
}

TEST(Messages, ToARankThatDoesNotReceiveYetDoNotFillItsMemoryNorStopTheSender) {
  std::atomic<bool> all_sent{false};
  run_on_all(2, [&all_sent](int rank, Engine& engine) {
    constexpr int kMessages = 3000;  // of 1 KiB: more than may be untaken
    std::vector<std::vector<float>> data;
    std::vector<Engine::WorkPtr> works;
    if (rank == 0) {
      for (int i = 0; i < kMessages; ++i) data.push_back(values(256, i));
      for (auto& each : data) {
        auto work = engine.send(message_with(1, 0, each));
        ASSERT_TRUE(work.ok());
        works.push_back(*work);
      }
      EXPECT_FALSE(engine.poll(*works.back()));
      all_sent = true;
      for (const auto& work : works) EXPECT_TRUE(engine.wait(*work).ok());
      all_sent = false;
    } else {
      while (!all_sent) std::this_thread::sleep_for(milliseconds(1));
      std::vector<float> got(256);
      for (int i = 0; i < kMessages; ++i) {
        ASSERT_TRUE(receive(engine, 0, 0, got).ok());
        ASSERT_EQ(got, values(256, i));
      }
    }
  });
}

TEST(Messages, FromAnyRankAreTakenAsTheyCome) {
  run_on_all(4, [](int rank, Engine& engine) {
    constexpr int kEach = 40;
    if (rank != 0) {
      for (int i = 0; i < kEach; ++i) {
        std::vector<float> data = values(i % 2 == 0 ? 4 : 20'000, 100 * rank + i);
        ASSERT_TRUE(send(engine, 0, i, data).ok());
      }
      return;
    }
    for (int i = 0; i < kEach; ++i) {
      int seen = 0;
      for (int k = 1; k < 4; ++k) {
        std::vector<float> got(i % 2 == 0 ? 4 : 20'000);
        int source = -1;
        const Status status = receive(engine, MessageRequest::kAnyRank, i, got, &source);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(got, values(got.size(), 100 * source + i));
        seen |= 1 << source;
      }
      EXPECT_EQ(seen, 0b1110);
    }
  });
}

TEST(Messages, GoFromARankToItself) {
  run_on_one_host(1, [](int, Engine& engine) {
    for (const std::size_t count : {3UL, 50'000UL}) {
      std::vector<float> data = values(count, 1);
      std::vector<float> got(count);
      auto sent = engine.send(message_with(0, 0, data));
      auto received = engine.receive(message_with(0, 0, got));
      ASSERT_TRUE(sent.ok() && received.ok());
      EXPECT_TRUE(engine.wait(**received).ok());
      EXPECT_TRUE(engine.wait(**sent).ok());
      EXPECT_EQ(got, data);
    }
  });
}

TEST(Messages, FromManyThreadsBesideBatches) {
  run_on_all(2, [](int rank, Engine& engine) {
    constexpr int kThreads = 4;
    std::vector<std::thread> threads;
    for (int tag = 0; tag < kThreads; ++tag) {
      threads.emplace_back([&engine, rank, tag] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> data = values(static_cast<std::size_t>(1 + i * 97), tag);
          std::vector<float> got(data.size());
          auto received = engine.receive(message_with(1 - rank, tag, got));
          auto sent = engine.send(message_with(1 - rank, tag, data));
          ASSERT_TRUE(sent.ok() && received.ok());
          ASSERT_TRUE(engine.wait(**received).ok());
          ASSERT_TRUE(engine.wait(**sent).ok());
          ASSERT_EQ(got, data);
        }
      });
    }
    for (int step = 0; step < 50; ++step) {
      std::vector<float> gradient(5000, static_cast<float>(rank + step));
      auto work = engine.submit(ronde::testing::allreduce_of("gradient", gradient));
      ASSERT_TRUE(work.ok());
      ASSERT_TRUE(engine.wait(**work).ok());
      ASSERT_EQ(gradient.back(), static_cast<float>(1 + 2 * step));
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(engine.statistics().tensors, 50U);
  });
}

TEST(Messages, ThatDoNotFitAreNamedOnBothRanks) {
  for (const int which : {0, 1, 2, 3}) {
    const std::size_t count = which % 2 == 0 ? 5 : 50'000;
    const std::vector<EnginePtr> engines = open_engines(2, on_hosts(2, 1 + which / 2));
    on_ranks(2, [&](int rank) {
      Engine& engine = *engines[static_cast<std::size_t>(rank)];
      std::vector<float> data = values(count + static_cast<std::size_t>(rank), 0);
      const Status status = rank == 0 ? send(engine, 1, 3, data) : receive(engine, 0, 3, data);
      const auto names =
          AllOf(HasSubstr("tag 3 from rank 0 to rank 1"),
                HasSubstr("rank 0 sends " + std::to_string(count) + " of f32"),
                HasSubstr("rank 1 receives " + std::to_string(count + 1) + " of f32"));
      const bool told_later = rank == 0 && count == 5;  // its send was done at once
      if (!told_later) {
        EXPECT_EQ(status.code(), Code::kMismatch);
        EXPECT_THAT(status.message(), names);
      }
      // The next ones arrive.
      std::vector<float> more = values(9, 0);
      EXPECT_TRUE((rank == 0 ? send(engine, 1, 3, more) : receive(engine, 0, 3, more)).ok());
      EXPECT_TRUE((rank == 1 ? send(engine, 0, 3, more) : receive(engine, 1, 3, more)).ok());
      const Status closed = engine.close();
      EXPECT_EQ(closed.ok(), !told_later) << closed.message();
      if (told_later) {
        EXPECT_THAT(closed.message(), names);
      }
    });
  }
}

TEST(Messages, AreRefusedByName) {
  run_on_all(2, [](int rank, Engine& engine) {
    std::vector<float> data(3);
    const auto refused = [&](const MessageRequest& request, Code code, const std::string& why) {
      for (const auto& work : {engine.send(request), engine.receive(request)}) {
        EXPECT_EQ(work.status().code(), code);
        EXPECT_THAT(work.status().message(), HasSubstr(why));
      }
    };
    refused(message_with(2, 0, data), Code::kInvalidArgument, "the ranks 0 to 1");
    MessageRequest request = message_with(1 - rank, 0, data);
    request.memory = nullptr;
    refused(request, Code::kInvalidArgument, "NULL");
    request = message_with(1 - rank, 0, data);
    request.count = -1;
    refused(request, Code::kInvalidArgument, "-1");
    request.count = 3;
    request.device = 0;
    refused(request, Code::kUnsupported, "device");
    EXPECT_EQ(engine.send(message_with(-1, 0, data)).status().code(), Code::kInvalidArgument);
  });
}

TEST(Messages, NeedRoomInTheArena) {
  run_on_one_host(2,
                  [](int rank, Engine& engine) {
                    std::vector<float> data(3);
                    const auto work = engine.send(message_with(1 - rank, 0, data));
                    EXPECT_EQ(work.status().code(), Code::kOutOfMemory);
                    EXPECT_THAT(work.status().message(), HasSubstr("RONDE_BUFFER_BYTES"));
                    const auto barrier =
                        engine.submit(ronde::testing::barrier_of("both have asked"));
                    ASSERT_TRUE(barrier.ok());
                    EXPECT_TRUE(engine.wait(**barrier).ok());
                  },
                  {"RONDE_BUFFER_BYTES=0"});
}

}  // namespace
}  // namespace ronde::runtime
