// SPDX-License-Identifier: Apache-2.0
// Damaged control messages: cut, overwritten, spliced, and plain noise. A decoder may refuse them
// or read them as another message; what it reads must encode to the very same bytes, and it must
// never crash, read beyond the end or take memory that the message does not pay for (asan watches).
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "runtime/messages.h"
#include "test/fuzz/damage.h"
#include "test/unit/runtime/sample_messages.h"

namespace ronde::runtime {
namespace {

using fuzz::Bytes;
using fuzz::damage;
using fuzz::Random;
using fuzz::random_byte;

Bytes random_message(Random& random) {
  return draw(random, 0, 1) == 0 ? encode(random_announcement(random))
                                 : encode(random_decision(random));
}

// Decodes a copy that ends where its memory ends, so that asan sees a read of one byte too many.
bool check(const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  bool accepted = false;
  const auto announcement = decode_announcement(exact);
  if (announcement.ok()) {
    EXPECT_EQ(encode(*announcement), exact);
    accepted = true;
  } else {
    EXPECT_EQ(announcement.status().code(), base::Code::kInternal);
    EXPECT_NE(announcement.status().message().find("at byte"), std::string::npos);
  }
  const auto decision = decode_decision(exact);
  if (decision.ok()) {
    EXPECT_FALSE(accepted) << "both an announcement and a decision";
    EXPECT_EQ(encode(*decision), exact);
    accepted = true;
    // What was let in must be safe to use: sizes are counted without asking again.
    if (const auto* bind = std::get_if<BindDecision>(&*decision)) {
      EXPECT_GE(payload_of(bind->tensor).value(), 0);
      EXPECT_FALSE(describe(bind->tensor.signature).empty());
    }
  }
  return accepted;
}

TEST(MessagesFuzz, DamagedMessages) {
  Random random(20'240'601);
  int accepted = 0;
  constexpr int kTries = 60'000;
  for (int i = 0; i < kTries && !testing::Test::HasFailure(); ++i) {
    Bytes bytes = random_message(random);
    for (std::int64_t times = draw(random, 1, 3); times > 0; --times)
      damage(random, bytes, random_message(random));
    accepted += check(bytes) ? 1 : 0;
  }
  // Both answers must come often, or the damage is of the wrong kind.
  EXPECT_GT(accepted, kTries / 20);
  EXPECT_LT(accepted, kTries - kTries / 20);
}

TEST(MessagesFuzz, EveryByteSetToEveryEndOfItsRange) {
  Random random(7);
  for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) {
    const Bytes bytes = random_message(random);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const unsigned value : {0x00U, 0x01U, 0x7FU, 0x80U, 0xFFU}) {
        Bytes damaged = bytes;
        damaged[at] = static_cast<std::byte>(value);
        (void)check(damaged);
      }
    }
  }
}

TEST(MessagesFuzz, Noise) {
  Random random(99);
  for (int i = 0; i < 40'000 && !testing::Test::HasFailure(); ++i) {
    Bytes bytes(static_cast<std::size_t>(draw(random, 0, 80)));
    for (std::byte& byte : bytes) byte = random_byte(random);
    // A kind that exists, or nearly all noise ends at its first byte.
    const unsigned kinds[] = {1, 2, 3, 16, 17, 18, 19, 20, 21};
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(kinds[draw(random, 0, 8)]);
    (void)check(bytes);
  }
}

}  // namespace
}  // namespace ronde::runtime
