// SPDX-License-Identifier: Apache-2.0
// Damaged messages between the leaders of hosts, as messages_test.cc does it for those of ranks.
#include "runtime/links/link_messages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "runtime/negotiate/messages.h"
#include "test/fuzz/damage.h"
#include "test/unit/runtime/negotiate/sample_messages.h"

namespace ronde::runtime {
namespace {

using fuzz::Bytes;
using fuzz::Random;

std::int32_t number(Random& random) { return static_cast<std::int32_t>(draw(random, 0, 1 << 20)); }

collectives::FailureRecord random_failure(Random& random) {
  collectives::FailureRecord record;
  record.culprit = static_cast<std::int32_t>(draw(random, -1, 100));
  record.reporter = static_cast<std::int32_t>(draw(random, -1, 100));
  record.code = base::Code::kPeerFailed;
  record.text = random_text(random);
  record.place = random_text(random);
  return record;
}

Bytes random_message(Random& random) {
  switch (draw(random, 0, 7)) {
    case 0:
      return encode(
          LinkMessage(RelayedAnnouncement{number(random), encode(random_announcement(random))}));
    case 1:
      return encode(LinkMessage(ReadyReport{number(random), 3}));
    case 2: {
      ClosedReport closed{number(random), 9, 2, {}};
      for (std::int64_t ranks = draw(random, 0, 5); ranks > 0; --ranks) {
        closed.ranks.push_back(draw(random, 0, 1000));
      }
      return encode(LinkMessage(closed));
    }
    case 3:
      return encode(LinkMessage(RelayedDecision{encode(random_decision(random))}));
    case 4:
      return encode(LinkMessage(RollCall{draw(random, 0, 1) == 0}));
    case 5:
      return encode(LinkMessage(GoodBye{}));
    case 6:
      return encode(LinkMessage(
          Frame{number(random), number(random), number(random), encode(random_decision(random))}));
    default:
      return encode(LinkMessage(random_failure(random)));
  }
}

// Decodes a copy that ends where its memory ends, so that asan sees a read of one byte too many.
bool check(const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  const auto message = decode_link_message(exact);
  if (message.ok()) {
    EXPECT_EQ(encode(*message), exact);
    return true;
  }
  EXPECT_EQ(message.status().code(), base::Code::kInternal);
  EXPECT_NE(message.status().message().find("at byte"), std::string::npos);
  return false;
}

TEST(LinkMessagesFuzz, WhatIsWholeIsRead) {
  Random random(3);
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(check(random_message(random)));
}

TEST(LinkMessagesFuzz, DamagedMessages) {
  fuzz::check_damaged(Random(20'261'122), random_message, check);
}

TEST(LinkMessagesFuzz, EveryByteSetToEveryEndOfItsRange) {
  fuzz::check_every_byte(Random(7), random_message, check);
}

TEST(LinkMessagesFuzz, Noise) {
  Random random(99);
  for (int i = 0; i < 40'000 && !testing::Test::HasFailure(); ++i) {
    Bytes bytes(static_cast<std::size_t>(draw(random, 1, 80)));
    for (std::byte& byte : bytes) byte = fuzz::random_byte(random);
    // A kind that exists, or nearly all noise ends at its first byte.
    bytes[0] = random_message(random)[0];
    (void)check(bytes);
  }
}

}  // namespace
}  // namespace ronde::runtime
