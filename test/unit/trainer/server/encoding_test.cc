// SPDX-License-Identifier: Apache-2.0
// Messages as bytes and back, and bytes that are no message.
#include "bindings/trainer/server/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "bindings/trainer/server/keys.h"

namespace ronde::trainer::server {
namespace {

using Bytes = std::vector<std::byte>;

template <typename Range>
Bytes bytes_of(const Range& range) {
  const auto bytes = std::as_bytes(std::span(range));
  return {bytes.begin(), bytes.end()};
}

std::vector<Bytes> frames_of(const Message& message) {
  std::vector<Bytes> frames{bytes_of(header_of(message)), bytes_of(message.text),
                            bytes_of(message.ids)};
  for (const auto& [owner, values] : float_frames_of(message)) frames.push_back(bytes_of(values));
  return frames;
}

std::optional<Message> decode(const std::vector<Bytes>& frames, std::string* why) {
  std::vector<Frame> views;
  for (const Bytes& one : frames) views.push_back({nullptr, one});
  return message_of(views, why);
}

Message example() {
  Message message;
  message.kind = Kind::kPush;
  message.from = {Role::kWorker, 3, 77};
  message.origin = {Role::kChief, 1, 5};
  message.group = 2;
  message.dropped = true;
  message.sequence = 9;
  message.version = 10;
  message.weight = 2.5;
  message.rate = 0.125;
  message.view = 4;
  message.dead = 6;
  message.entry = 12;
  message.text = "words";
  message.ids = {1, -2};
  message.floats = Floats::of({1.5F, -2.0F, 0.0F});
  return message;
}

TEST(ServerEncoding, AMessageComesBackWhole) {
  const Message message = example();
  std::string why;
  const std::vector<Bytes> frames = frames_of(message);
  const auto back = decode(frames, &why);
  ASSERT_TRUE(back) << why;
  EXPECT_EQ(header_of(*back), header_of(message));
  EXPECT_EQ(back->from, message.from);
  EXPECT_EQ(back->origin, message.origin);
  EXPECT_EQ(back->entry, message.entry);
  EXPECT_EQ(back->text, "words");
  EXPECT_THAT(back->ids, testing::ElementsAre(1, -2));
  EXPECT_THAT(back->floats.whole(), testing::ElementsAre(1.5F, -2.0F, 0.0F));
}

TEST(ServerEncoding, FloatsAtAnOddAddressAreCopied) {
  const Message message = example();
  std::vector<Bytes> frames = frames_of(message);
  Bytes odd(1 + frames[3].size());
  std::memcpy(odd.data() + 1, frames[3].data(), frames[3].size());
  std::vector<Frame> views;
  for (const Bytes& one : frames) views.push_back({nullptr, one});
  views[3].bytes = std::span<const std::byte>(odd).subspan(1);
  std::string why;
  const auto back = message_of(views, &why);
  ASSERT_TRUE(back) << why;
  EXPECT_THAT(back->floats.whole(), testing::ElementsAre(1.5F, -2.0F, 0.0F));
}

TEST(ServerEncoding, ManyFloatsTravelInFramesFromWhereTheyLie) {
  Message message = example();
  message.floats = Floats::of(std::vector<float>(kFrameFloats + 5, 3.0F));
  message.floats.add(Floats::of({4.0F}));
  const auto frames = float_frames_of(message);
  ASSERT_THAT(frames, testing::SizeIs(3));
  EXPECT_EQ(frames[1].values.data(), frames[0].values.data() + kFrameFloats);
  EXPECT_THAT(frames[2].values, testing::ElementsAre(4.0F));
  std::string why;
  const std::vector<Bytes> bytes = frames_of(message);
  const auto back = decode(bytes, &why);
  ASSERT_TRUE(back) << why;
  EXPECT_EQ(back->floats.whole(), message.floats.whole());
}

TEST(ServerEncoding, WhatDoesNotFitIsRefused) {
  std::string why;
  std::vector<Bytes> frames = frames_of(example());
  frames.pop_back();
  EXPECT_FALSE(decode(frames, &why));
  EXPECT_EQ(why, "frames of other sizes than the header says");
  frames.pop_back();
  EXPECT_FALSE(decode(frames, &why));
  EXPECT_EQ(why, "2 frames, and not 3 at least");
  Message message = example();
  message.rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(decode(frames_of(message), &why));
  EXPECT_EQ(why, "a weight or rate that is no number");
  for (std::size_t at = 4; at < 8; ++at) {  // kind, two roles and a bool
    frames = frames_of(example());
    frames[0][at] ^= std::byte{64};
    EXPECT_FALSE(decode(frames, &why)) << at;
    EXPECT_EQ(why, "a kind, role or switch that does not exist");
  }
  for (std::size_t frame = 0; frame <= kFrames; ++frame) {
    frames = frames_of(example());
    frames[frame].pop_back();
    EXPECT_FALSE(decode(frames, &why)) << frame;
    frames[frame].resize(frames[frame].size() + 9);
    EXPECT_FALSE(decode(frames, &why)) << frame;
  }
}

// Bytes that are changed at random: each is a message that encodes to the same bytes, or refused.
TEST(ServerEncoding, DamagedBytesNeverPassForOthers) {
  std::mt19937_64 random(1);
  int passed = 0;
  for (int run = 0; run < 50'000; ++run) {
    std::vector<Bytes> frames = frames_of(example());
    const auto changes = 1 + random() % 4;
    for (std::uint64_t i = 0; i < changes; ++i) {
      Bytes& frame = frames[random() % frames.size()];
      if (random() % 4 == 0) {
        frame.resize(random() % 200);
      } else if (!frame.empty()) {
        frame[random() % frame.size()] ^= static_cast<std::byte>(1U << random() % 8);
      }
    }
    std::string why;
    const auto back = decode(frames, &why);
    if (!back) {
      ASSERT_NE(why, "");
      continue;
    }
    ++passed;
    ASSERT_EQ(frames_of(*back), frames) << "run " << run;
  }
  EXPECT_GT(passed, 0);  // most bits are as good as any
}

TEST(ServerEncoding, NamesOfTasksComeBack) {
  for (const Role role : {Role::kServer, Role::kWorker, Role::kChief, Role::kEvaluator}) {
    const Address address{role, 12, 34'567'890'123U};
    EXPECT_EQ(address_of(identity_of(address)), address);
  }
  for (const char* const text : {"", "w", "w1", "w1.", "x1.2", "w.2", "w1.2 ", "w99999999999.1"}) {
    EXPECT_FALSE(address_of(text)) << text;
  }
}

// As another program finds them: Z85 of SHA-256 of the purpose, a line's end and the secret.
TEST(ServerKeys, AreMadeFromTheSecret) {
  const Keys keys = keys_of("a secret of the job");
  EXPECT_EQ(keys.server_secret, R"(cM%[V5U}+s<xNn}=R.dq/*0=kQjsnp8&tB2L3gNx)");
  EXPECT_EQ(keys.client_secret, R"(WgD#f*&ba4Qvj*y90J{IW3f9YSmYGlJ#7p]ozjF3)");
}

TEST(ServerKeys, ASecretMakesTheSameKeysAndAnotherOthers) {
  const Keys keys = keys_of("a secret of sixteen");
  EXPECT_EQ(keys.server_public, keys_of("a secret of sixteen").server_public);
  EXPECT_NE(keys.server_public, keys_of("a secret of sixteeN").server_public);
  EXPECT_NE(keys.server_public, keys.client_public);
  EXPECT_EQ(keys.server_public.size(), 40U);
}

}  // namespace
}  // namespace ronde::trainer::server
