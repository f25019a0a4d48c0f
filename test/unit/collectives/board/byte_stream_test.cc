// SPDX-License-Identifier: Apache-2.0
// Byte streams: every message arrives whole and in order whatever its size, a writer that waits for
// room is always rung, and corrupt memory is an error.
#include "collectives/board/byte_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "test/unit/collectives/board/sleeper.h"

namespace ronde::collectives {
namespace {

using Message = std::vector<std::byte>;

// A stream in plain memory with a doorbell for the writer and one for each reader.
struct Stream {
  Stream(std::size_t bytes, int readers)
      : ring(bytes),
        reader_words(static_cast<std::size_t>(readers)),
        bells(reader_words.size() + 1) {
    fds = *make_event_fds(readers + 1);
  }

  StreamWriter writer() { return {&writer_words, reader_words, ring}; }
  StreamReader reader(std::size_t index) {
    return {&writer_words, &reader_words[index], ring, writer_bell()};
  }
  Doorbell writer_bell() { return {&bells[0], (*fds)[0].get()}; }
  Doorbell reader_bell(std::size_t index) { return {&bells[index + 1], (*fds)[index + 1].get()}; }

  std::vector<std::byte> ring;
  StreamWriterWords writer_words;
  std::vector<StreamReaderWords> reader_words;
  std::vector<DoorbellWords> bells;
  EventFds fds;
};

Message make_message(std::size_t size, std::uint32_t seed) {
  Message message(size);
  std::uint32_t value = seed * 2654435761U + 1;
  for (auto& byte : message) {
    value = value * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(value >> 24U);
  }
  return message;
}

// Returns the next whole message, or nullopt.
std::optional<Message> next(StreamReader& reader) {
  const auto polled = reader.poll();
  EXPECT_TRUE(polled.ok()) << polled.status().to_string();
  if (!polled.ok() || !polled->has_value()) return std::nullopt;
  return Message((*polled)->begin(), (*polled)->end());
}

TEST(ByteStream, CarriesMessagesOfEverySizeThroughEverySmallRing) {
  for (const std::size_t ring : {64U, 65U, 71U, 128U}) {
    Stream stream(ring, 1);
    StreamWriter writer = stream.writer();
    StreamReader reader = stream.reader(0);
    for (std::size_t size = 0; size < 300; ++size) {
      const Message sent = make_message(size, static_cast<std::uint32_t>(size));
      ASSERT_TRUE(writer.post(sent).ok());
      std::optional<Message> got = next(reader);
      while (!got.has_value()) {
        ASSERT_TRUE(writer.flush().ok());
        got = next(reader);
      }
      ASSERT_EQ(*got, sent) << "size " << size << " ring " << ring;
      ASSERT_EQ(writer.backlog().value(), 0);
      ASSERT_FALSE(next(reader).has_value());
    }
  }
}

TEST(ByteStream, SaysWhatWasAddedAndWhatIsLeftOver) {
  Stream stream(64, 1);
  StreamWriter writer = stream.writer();
  StreamReader reader = stream.reader(0);
  EXPECT_FALSE(writer.take_added());
  ASSERT_TRUE(writer.post(make_message(100, 1)).ok());
  EXPECT_TRUE(writer.take_added());
  EXPECT_FALSE(writer.take_added());
  EXPECT_EQ(writer.backlog().value(), 100 + 8 - 64);
  EXPECT_FALSE(*writer.flush());
  EXPECT_FALSE(writer.take_added()) << "there is no room";

  EXPECT_EQ(stream.writer_bell().rings(), 0U);
  EXPECT_FALSE(next(reader).has_value());
  EXPECT_EQ(stream.writer_bell().rings(), 1U) << "the writer waits, so it is rung";
  EXPECT_TRUE(*writer.flush());
  EXPECT_TRUE(writer.take_added());
  EXPECT_EQ(next(reader), make_message(100, 1));
  EXPECT_EQ(stream.writer_bell().rings(), 1U) << "nobody waits any more";
}

// What is taken in place lies in the ring itself.
TEST(ByteStream, TellsHowLongAMessageMayBeToLieInOnePiece) {
  for (const std::size_t before : {0U, 1U, 30U, 40U, 48U}) {
    Stream stream(64, 1);
    StreamWriter writer = stream.writer();
    StreamReader reader = stream.reader(0);
    ASSERT_TRUE(writer.post(make_message(before, 1)).ok());
    ASSERT_EQ(next(reader), make_message(before, 1));
    const std::uint64_t straight = writer.straight_bytes();
    EXPECT_EQ(straight, 64 - 8 - before - 8);
    for (const std::uint64_t size : {straight, straight + 1}) {
      StreamWriter begun = stream.writer();
      ASSERT_TRUE(*begun.try_post(make_message(size, 2), {}));
      StreamReader again = stream.reader(0);
      const auto message = again.poll_in_place();
      ASSERT_TRUE(message.ok() && message->has_value());
      const auto at = reinterpret_cast<std::uintptr_t>((*message)->data()) -
                      reinterpret_cast<std::uintptr_t>(stream.ring.data());
      EXPECT_EQ(at + size <= stream.ring.size(), size == straight) << before << " " << size;
      // As if it had never been.
      stream.writer_words.written.store(before + 8);
      stream.reader_words[0].consumed.store(before + 8);
    }
  }
}

TEST(ByteStream, EndsWhereAnEarlierReaderAndWriterStopped) {
  Stream stream(64, 1);
  {
    StreamWriter writer = stream.writer();
    ASSERT_TRUE(writer.post(make_message(30, 1)).ok());
    StreamReader reader = stream.reader(0);
    EXPECT_EQ(next(reader), make_message(30, 1));
  }
  StreamWriter writer = stream.writer();
  ASSERT_TRUE(writer.post(make_message(40, 2)).ok());
  StreamReader reader = stream.reader(0);
  EXPECT_EQ(next(reader), make_message(40, 2));
}

TEST(ByteStream, ARefusedMessageLeavesTheStreamAsItWas) {
  Stream stream(64, 1);
  StreamWriter writer = stream.writer();
  // The bytes are never read: post() refuses the length alone.
  const std::byte byte{};
  const std::span<const std::byte> too_long(&byte, kLongestMessage + 1);
  EXPECT_EQ(writer.post(too_long).code(), base::Code::kInvalidArgument);
  ASSERT_TRUE(writer.post(make_message(5, 3)).ok());
  StreamReader reader = stream.reader(0);
  EXPECT_EQ(next(reader), make_message(5, 3));
}

TEST(ByteStream, ACorruptLengthIsAnError) {
  Stream stream(64, 1);
  StreamWriter writer = stream.writer();
  StreamReader reader = stream.reader(0);
  ASSERT_TRUE(writer.post(make_message(8, 1)).ok());
  const std::uint64_t length = kLongestMessage + 1;
  std::memcpy(stream.ring.data(), &length, sizeof length);
  const auto polled = reader.poll();
  ASSERT_FALSE(polled.ok());
  EXPECT_EQ(polled.status().code(), base::Code::kInternal);
  EXPECT_NE(polled.status().message().find("corrupt"), std::string::npos);
}

TEST(ByteStream, CorruptPositionsAreErrors) {
  Stream stream(64, 1);
  StreamWriter writer = stream.writer();
  StreamReader reader = stream.reader(0);
  stream.writer_words.written.store(65);
  EXPECT_FALSE(reader.poll().ok());
  stream.reader_words[0].consumed.store(1000);  // ahead of the writer
  EXPECT_FALSE(writer.post(make_message(8, 1)).ok());
}

TEST(ByteStream, ALongBacklogThatNeverDrainsDoesNotGrow) {
  Stream stream(64, 1);
  StreamWriter writer = stream.writer();
  StreamReader reader = stream.reader(0);
  ASSERT_TRUE(writer.post(make_message(1 << 20, 0)).ok());
  std::uint32_t got = 0;
  for (std::uint32_t n = 1; n <= 40; ++n) {
    ASSERT_TRUE(writer.post(make_message(1 << 18, n)).ok());
    for (int i = 0; i < 4096; ++i) {  // 64 bytes each: as much as was posted
      ASSERT_TRUE(writer.flush().ok());
      const auto message = next(reader);
      if (!message.has_value()) continue;
      ASSERT_EQ(*message, make_message(got == 0 ? 1 << 20 : 1 << 18, got));
      ++got;
    }
    ASSERT_LT(writer.backlog().value(), 3 << 20);
  }
  EXPECT_GT(got, 30U);
}

TEST(ByteStream, ASlowReaderHoldsTheOthersBackUntilItIsDetached) {
  Stream stream(64, 3);
  StreamWriter writer = stream.writer();
  StreamReader fast = stream.reader(0);
  StreamReader medium = stream.reader(1);
  for (std::uint32_t n = 0; n < 10; ++n) ASSERT_TRUE(writer.post(make_message(20, n)).ok());
  for (std::uint32_t n = 0; n < 2; ++n) {
    EXPECT_EQ(next(fast), make_message(20, n));
    EXPECT_EQ(next(medium), make_message(20, n));
  }
  EXPECT_FALSE(next(fast).has_value());
  EXPECT_FALSE(*writer.flush());
  writer.detach(2);
  EXPECT_FALSE(*writer.flush());  // more than a ring is left
  for (std::uint32_t n = 2; n < 10; ++n) {
    auto first = next(fast);
    auto second = next(medium);
    while (!first.has_value() || !second.has_value()) {
      ASSERT_TRUE(writer.flush().ok());
      if (!first.has_value()) first = next(fast);
      if (!second.has_value()) second = next(medium);
    }
    EXPECT_EQ(first, make_message(20, n));
    EXPECT_EQ(second, make_message(20, n));
  }
  EXPECT_TRUE(*writer.flush());
}

std::size_t random_size(std::mt19937& random, std::size_t ring) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return random() % (3 * ring);  // larger than the ring
    default:
      return random() % (ring / 4 + 1);
  }
}

// A writer and N readers in threads of their own, all of which sleep whenever they are stuck.
void hammer(std::size_t ring, int readers, std::uint32_t messages, std::uint32_t seed) {
  Stream stream(ring, readers);
  std::vector<std::size_t> sizes(messages);
  std::mt19937 random(seed);
  for (auto& size : sizes) size = random_size(random, ring);

  std::vector<std::thread> threads;
  std::vector<std::uint32_t> got(static_cast<std::size_t>(readers), 0);
  for (std::size_t r = 0; r < got.size(); ++r) {
    threads.emplace_back([&, r] {
      StreamReader reader = stream.reader(r);
      const Doorbell bell = stream.reader_bell(r);
      while (got[r] < messages) {
        const std::uint64_t seen = bell.rings();
        bool any = false;
        while (const auto message = next(reader)) {
          if (*message != make_message(sizes[got[r]], got[r])) return;
          ++got[r];
          any = true;
        }
        if (!any && !sleep_until_rung(bell, seen)) return;
      }
    });
  }

  StreamWriter writer = stream.writer();
  const Doorbell bell = stream.writer_bell();
  const auto ring_readers = [&] {
    if (!writer.take_added()) return;
    for (std::size_t r = 0; r < got.size(); ++r) stream.reader_bell(r).ring();
  };
  bool woken = true;
  for (std::uint32_t n = 0; n < messages && woken; ++n) {
    EXPECT_TRUE(writer.post(make_message(sizes[n], n)).ok());
    ring_readers();
    // The writer lets a few messages pile up and then waits for room, where a wake-up could be
    // lost.
    while (woken && (writer.backlog().size() > 2 * ring || n + 1 == messages)) {
      const std::uint64_t seen = bell.rings();
      const bool empty = *writer.flush();
      ring_readers();
      if (empty) break;
      woken = sleep_until_rung(bell, seen);
    }
  }
  EXPECT_TRUE(woken) << "the writer was forgotten";
  for (auto& thread : threads) thread.join();
  for (const std::uint32_t count : got) EXPECT_EQ(count, messages);
}

// The reader never sleeps, and empties the ring at every moment while the writer goes to sleep:
// also between the writer's look at the cursors and the store of its `waiting` word.
TEST(ByteStream, AWriterThatFallsAsleepIsRung) {
  constexpr std::uint32_t kMessages = 100000;
  Stream stream(64, 1);
  std::atomic<bool> stop{false};
  std::thread consumer([&] {
    StreamReader reader = stream.reader(0);
    for (std::uint32_t got = 0; got < kMessages && !stop.load();) {
      if (next(reader).has_value()) ++got;
    }
  });
  StreamWriter writer = stream.writer();
  const Doorbell bell = stream.writer_bell();
  const Message message = make_message(200, 1);
  bool woken = true;
  for (std::uint32_t n = 0; n < kMessages && woken; ++n) {
    std::uint64_t seen = bell.rings();
    EXPECT_TRUE(writer.post(message).ok());
    while (writer.backlog().value() > 0 && (woken = sleep_until_rung(bell, seen))) {
      seen = bell.rings();
      EXPECT_TRUE(writer.flush().ok());
    }
  }
  EXPECT_TRUE(woken);
  stop.store(!woken);
  consumer.join();
}

TEST(ByteStream, NobodyIsForgottenWithOneReader) {
  hammer(64, 1, 40000, 1);
  hammer(1000, 1, 20000, 2);
}

TEST(ByteStream, NobodyIsForgottenWithManyReaders) {
  hammer(64, 3, 10000, 3);
  hammer(512, 7, 5000, 4);
}

}  // namespace
}  // namespace ronde::collectives
