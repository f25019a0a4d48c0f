// SPDX-License-Identifier: Apache-2.0
#include "collectives/transport/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

namespace ronde::collectives {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Two ranks and a mailbox for each.
struct Pair {
  explicit Pair(FaultPlan plan = {}, LocalEnd::OnArrival on_arrival = {})
      : hub(std::make_shared<LocalHub>(3, std::move(plan))),
        a(local_transport(hub, 0, std::move(on_arrival))),
        b(local_transport(hub, 1)) {}

  std::shared_ptr<LocalHub> hub;
  Transport a;
  Transport b;
};

bool ended(Transport& transport, Transport::Request request) {
  const auto done = transport.test(request);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() && *done;
}

TEST(LocalTransport, AMessageArrives) {
  Pair pair;
  std::string to(5, ' ');
  const auto received = pair.b.receive(0, 7, std::as_writable_bytes(std::span(to)));
  EXPECT_FALSE(ended(pair.b, *received));
  const auto sent = pair.a.send(1, 7, bytes_of("hello"));
  EXPECT_EQ(pair.a.outstanding(), 1);
  EXPECT_TRUE(ended(pair.a, *sent));
  EXPECT_TRUE(ended(pair.b, *received));
  EXPECT_EQ(to, "hello");
  EXPECT_EQ(pair.a.outstanding() + pair.b.outstanding(), 0);
}

TEST(LocalTransport, OrderIsKeptPerTagHoweverReceivesAreTested) {
  Pair pair;
  ASSERT_TRUE(pair.a.send(1, 1, bytes_of("one")).ok());
  ASSERT_TRUE(pair.a.send(1, 2, bytes_of("two")).ok());
  ASSERT_TRUE(pair.a.send(1, 1, bytes_of("uno")).ok());
  std::string first(3, ' ');
  std::string second(3, ' ');
  std::string other(3, ' ');
  const auto r1 = pair.b.receive(0, 1, std::as_writable_bytes(std::span(first)));
  const auto r2 = pair.b.receive(0, 1, std::as_writable_bytes(std::span(second)));
  const auto r3 = pair.b.receive(0, 2, std::as_writable_bytes(std::span(other)));
  EXPECT_TRUE(ended(pair.b, *r2));
  EXPECT_TRUE(ended(pair.b, *r3));
  EXPECT_TRUE(ended(pair.b, *r1));
  EXPECT_EQ(first + second + other, "oneunotwo");
}

TEST(LocalTransport, EmptyMessagesAreMessages) {
  Pair pair;
  const auto received = pair.b.receive(0, 0, {});
  EXPECT_FALSE(ended(pair.b, *received));
  ASSERT_TRUE(pair.a.send(1, 0, {}).ok());
  EXPECT_TRUE(ended(pair.b, *received));
}

TEST(LocalTransport, AnArrivalRingsTheReceiver) {
  std::vector<int> rung;
  Pair pair({}, [&](int rank) { rung.push_back(rank); });
  EXPECT_FALSE(pair.a.needs_polling());
  ASSERT_TRUE(pair.a.send(1, 0, {}).ok());
  ASSERT_TRUE(pair.a.send(2, 0, {}).ok());
  EXPECT_EQ(rung, (std::vector<int>{1, 2}));
}

TEST(LocalTransport, ASynchronousSendEndsWhenTheMessageIsTaken) {
  Pair pair({.synchronous_sends = true});
  const auto sent = pair.a.send(1, 0, bytes_of("x"));
  EXPECT_FALSE(ended(pair.a, *sent));
  std::string to(1, ' ');
  const auto received = pair.b.receive(0, 0, std::as_writable_bytes(std::span(to)));
  EXPECT_FALSE(ended(pair.a, *sent));
  EXPECT_TRUE(ended(pair.b, *received));
  EXPECT_TRUE(ended(pair.a, *sent));
}

TEST(LocalTransport, DelaysAreDrawnFromTheSeedAndEnd) {
  const auto tests_needed = [](std::uint64_t seed) {
    Pair pair({.seed = seed, .max_delay = 10});
    EXPECT_TRUE(pair.b.needs_polling());
    std::vector<int> needed;
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(pair.a.send(1, 0, {}).ok());
      const auto received = pair.b.receive(0, 0, {});
      int tests = 1;
      while (!ended(pair.b, *received)) ++tests;
      EXPECT_LE(tests, 11);
      needed.push_back(tests);
    }
    return needed;
  };
  EXPECT_EQ(tests_needed(1), tests_needed(1));
  EXPECT_NE(tests_needed(1), tests_needed(2));
}

TEST(LocalTransport, ACutLinkFailsOnBothSidesAndNamesBothRanks) {
  Pair pair({.cuts = {{.a = 1, .b = 0, .after_messages = 1}}});
  Transport c = local_transport(pair.hub, 2);
  ASSERT_TRUE(pair.a.send(1, 0, bytes_of("x")).ok());
  std::string to(1, ' ');
  const auto before = pair.b.receive(0, 0, std::as_writable_bytes(std::span(to)));
  EXPECT_TRUE(ended(pair.b, *before)) << "sent before the cut";

  const auto sent = pair.a.send(1, 0, bytes_of("y"));
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.status().code(), base::Code::kTransport);
  EXPECT_EQ(sent.status().rank(), 1);
  EXPECT_THAT(sent.status().message(), HasSubstr("rank 0 and rank 1"));

  const auto received = pair.b.receive(0, 0, std::as_writable_bytes(std::span(to)));
  const auto tested = pair.b.test(*received);
  ASSERT_FALSE(tested.ok());
  EXPECT_EQ(tested.status().rank(), 0);
  EXPECT_THAT(tested.status().message(), HasSubstr("rank 1 and rank 0"));
  EXPECT_EQ(pair.b.outstanding(), 0) << "the request is gone";

  EXPECT_TRUE(pair.a.send(2, 0, {}).ok()) << "other links live on";
  EXPECT_TRUE(c.send(1, 0, {}).ok());
}

TEST(LocalTransport, AWrongLengthIsAnErrorOfTheReceiver) {
  Pair pair({.wrong_lengths = {{.from = 0, .to = 1, .message = 1}}});
  std::string to(1, ' ');
  for (int message = 0; message < 2; ++message) {
    ASSERT_TRUE(pair.a.send(1, 0, bytes_of("x")).ok());
    const auto received = pair.b.receive(0, 0, std::as_writable_bytes(std::span(to)));
    const auto tested = pair.b.test(*received);
    ASSERT_EQ(tested.ok(), message == 0);
    if (tested.ok()) continue;
    EXPECT_EQ(tested.status().code(), base::Code::kTransport);
    EXPECT_THAT(tested.status().message(), HasSubstr("from rank 0 to rank 1"));
    EXPECT_THAT(tested.status().message(), HasSubstr("2 bytes where 1 were expected"));
  }
}

TEST(LocalTransport, ThreadsExchangeManyMessages) {
  constexpr int kRanks = 4;
  constexpr int kMessages = 500;
  const auto hub = std::make_shared<LocalHub>(kRanks);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Transport transport = local_transport(hub, rank);
      const int next = (rank + 1) % kRanks;
      const int previous = (rank + kRanks - 1) % kRanks;
      for (int i = 0; i < kMessages; ++i) {
        int received = -1;
        const int sent = rank * kMessages + i;
        const auto in =
            transport.receive(previous, 0, std::as_writable_bytes(std::span(&received, 1)));
        const auto out = transport.send(next, 0, std::as_bytes(std::span(&sent, 1)));
        while (!*transport.test(*out)) std::this_thread::yield();
        while (!*transport.test(*in)) std::this_thread::yield();
        if (received != previous * kMessages + i) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ronde::collectives
