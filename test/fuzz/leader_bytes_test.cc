// SPDX-License-Identifier: Apache-2.0
// What another host's leader, or a stranger, may send: streams of frames that are cut, overwritten
// and delivered in random pieces. A reader may refuse them or read something else; it must never
// crash, read beyond what has arrived or take memory for what was only announced (asan watches).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/wire/frame_socket.h"

namespace ronde::runtime {
namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

std::size_t draw(Random& random, std::size_t from, std::size_t to) {
  return std::uniform_int_distribution<std::size_t>(from, to)(random);
}

std::byte random_byte(Random& random) { return static_cast<std::byte>(draw(random, 0, 255)); }

Bytes random_bytes(Random& random, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = random_byte(random);
  return bytes;
}

// Frames of every size class, as they are on the wire.
struct Stream {
  std::vector<Bytes> frames;
  Bytes wire;
};

Stream random_stream(Random& random) {
  Stream stream;
  for (std::size_t left = draw(random, 0, 12); left > 0; --left) {
    const std::size_t most[] = {1, 40, 3'000, 200'000};
    stream.frames.push_back(random_bytes(random, draw(random, 1, most[draw(random, 0, 3)])));
    const Bytes& frame = stream.frames.back();
    const auto length = static_cast<std::uint32_t>(frame.size());
    const std::size_t at = stream.wire.size();
    stream.wire.resize(at + sizeof length + frame.size());
    std::memcpy(stream.wire.data() + at, &length, sizeof length);
    std::memcpy(stream.wire.data() + at + sizeof length, frame.data(), frame.size());
  }
  return stream;
}

// Feeds bytes in random pieces; returns the frames that were read, and whether it failed.
bool read_all(Random& random, const Bytes& wire, std::vector<Bytes>& frames) {
  base::FrameReader reader;
  std::size_t at = 0;
  for (;;) {
    const auto frame = reader.next();
    if (!frame.ok()) return false;
    if (frame->has_value()) {
      frames.emplace_back((*frame)->begin(), (*frame)->end());
      continue;
    }
    if (at == wire.size()) return true;
    const auto room = reader.room();
    EXPECT_FALSE(room.empty());
    const std::size_t most = draw(random, 0, 1) == 0 ? 7 : room.size();
    const std::size_t size = std::min({draw(random, 1, most), room.size(), wire.size() - at});
    std::memcpy(room.data(), wire.data() + at, size);
    reader.arrived(size);
    at += size;
    EXPECT_LE(reader.capacity(), 2 * at + (std::size_t{64} << 10U));
  }
}

TEST(FrameReaderFuzz, FramesComeOutAsTheyWentIn) {
  Random random(11);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Stream stream = random_stream(random);
    std::vector<Bytes> frames;
    EXPECT_TRUE(read_all(random, stream.wire, frames));
    EXPECT_TRUE(frames == stream.frames);
  }
}

TEST(FrameReaderFuzz, DamagedStreams) {
  Random random(12);
  int refused = 0;
  constexpr int kTries = 300;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    Bytes wire = random_stream(random).wire;
    for (std::size_t times = draw(random, 1, 8); times > 0 && !wire.empty(); --times) {
      const std::size_t at = draw(random, 0, std::min<std::size_t>(wire.size() - 1, 60));
      if (draw(random, 0, 3) == 0) {
        wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        wire[at] = random_byte(random);
      }
    }
    std::vector<Bytes> frames;
    refused += read_all(random, wire, frames) ? 0 : 1;
    std::size_t total = 0;
    for (const Bytes& frame : frames) {
      EXPECT_FALSE(frame.empty());
      total += frame.size() + sizeof(std::uint32_t);
    }
    EXPECT_LE(total, wire.size());
  }
  EXPECT_GT(refused, kTries / 10);
  EXPECT_LT(refused, kTries);
}

}  // namespace
}  // namespace ronde::runtime
