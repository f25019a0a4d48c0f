// SPDX-License-Identifier: Apache-2.0
// A thread that waits for a message can sleep on the descriptor of its end, and is woken.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "test/support/transport_contract.h"
#include "test/support/ucx_ends.h"

namespace ronde::collectives::ucx {
namespace {

// Handles what has arrived until nothing more is there, and the descriptor is armed.
void settle(Transport& end) {
  for (int round = 0; round < 100000; ++round) {
    const auto armed = end.arm();
    ASSERT_TRUE(armed.ok()) << armed.status().to_string();
    if (*armed) return;
    ASSERT_TRUE(end.progress().ok());
  }
  FAIL() << "the end is never ready to sleep";
}

// Whether the descriptor becomes readable.
bool wakes(Transport& end, std::chrono::milliseconds limit) {
  pollfd watched{end.descriptor(), POLLIN, 0};
  return ::poll(&watched, 1, static_cast<int>(limit.count())) == 1;
}

// Finishes a request, asleep whenever there is nothing to do.
void finish_asleep(Transport& end, Transport::Request request) {
  for (int wakings = 0; wakings < 100000; ++wakings) {
    // Twice, because the second call makes progress.
    for (int i = 0; i < 2; ++i) {
      const auto done = end.test(request);
      EXPECT_TRUE(done.ok()) << done.status().to_string();
      if (!done.ok() || *done) return;
    }
    const auto armed = end.arm();
    EXPECT_TRUE(armed.ok());
    if (!*armed) continue;
    EXPECT_TRUE(wakes(end, std::chrono::seconds(60))) << "asleep for ever";
  }
  ADD_FAILURE() << "woken again and again for nothing";
}

TEST(UcxSleeping, AThreadThatSleepsIsWokenByAMessage) {
  const auto ends = ucx_ends(2);
  const auto ping_pong = [](Transport& end) {
    TransportContract talk(end);
    // Messages of every protocol of UCX, to a sleeper, back and forth.
    for (const std::size_t bytes : std::vector<std::size_t>{0, 8, 3000, 60'000, 5'000'000}) {
      for (int round = 0; round < (bytes > 1'000'000 ? 4 : 50); ++round) {
        const auto message = TransportContract::make(0, 1, round, bytes);
        TransportContract::Message to(bytes);
        if (end.rank() == 0) finish_asleep(end, talk.send(1, 1, message));
        finish_asleep(end, talk.receive(1 - end.rank(), 1, to));
        ASSERT_EQ(to, message);
        if (end.rank() == 1) finish_asleep(end, talk.send(0, 1, to));
      }
    }
    talk.meet(2);
  };
  std::thread other([&] { ping_pong(*ends[1]); });
  ping_pong(*ends[0]);
  other.join();
}

TEST(UcxSleeping, WhereNothingHappensNothingWakes) {
  const auto ends = ucx_ends(2);
  std::thread other([&] { TransportContract(*ends[1]).meet(1); });
  TransportContract(*ends[0]).meet(1);  // so that they are connected
  other.join();
  std::byte word{};
  const auto request = ends[0]->receive(1, 2, {&word, 1});
  for (const auto& end : ends) settle(*end);
  // The first second after connecting may bring a word or two of UCX's own.
  for (const auto& end : ends) {
    if (wakes(*end, std::chrono::milliseconds(50))) {
      ASSERT_TRUE(end->progress().ok());
      settle(*end);
    }
  }
  for (const auto& end : ends) EXPECT_FALSE(wakes(*end, std::chrono::milliseconds(500)));
  // And it is not deaf.
  const auto sent = ends[1]->send(0, 2, {&word, 1});
  ASSERT_TRUE(sent.ok());
  EXPECT_TRUE(wakes(*ends[0], std::chrono::seconds(60)));
  finish_asleep(*ends[0], *request);
  EXPECT_TRUE(TransportContract(*ends[1]).finish(*sent).ok());
}

// A rank that waits for nothing has to answer those that connect.
TEST(UcxSleeping, AnEndWithoutRequestsIsWokenWhenAnotherConnects) {
  const auto ends = ucx_ends(2);
  settle(*ends[0]);
  std::byte word{};
  const auto sent = ends[1]->send(0, 2, {&word, 1});
  ASSERT_TRUE(sent.ok());
  ASSERT_TRUE(ends[1]->progress().ok());
  EXPECT_TRUE(wakes(*ends[0], std::chrono::seconds(60)));
  TransportContract first(*ends[0]);
  std::thread other([&] { EXPECT_TRUE(TransportContract(*ends[1]).finish(*sent).ok()); });
  EXPECT_TRUE(first.finish(first.receive(1, 2, {&word, 1})).ok());
  other.join();
}

}  // namespace
}  // namespace ronde::collectives::ucx
