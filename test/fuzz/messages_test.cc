// SPDX-License-Identifier: Apache-2.0
// Damaged control messages: cut, overwritten, spliced, and plain noise. A decoder may refuse them
// or read them as another message; what it reads must encode to the very same bytes, and it must
// never crash, read beyond the end or take memory that the message does not pay for (asan watches).
#include <gtest/gtest.h>

#include "runtime/negotiate/messages.h"
#include "test/fuzz/damage.h"
#include "test/unit/runtime/negotiate/sample_messages.h"

namespace ronde::runtime {
namespace {

using fuzz::Bytes;
using fuzz::Random;

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
    // An accepted message must be safe to use, because its users do not check sizes again.
    if (const auto* bind = std::get_if<BindDecision>(&*decision)) {
      EXPECT_GE(payload_of(bind->tensor).value(), 0);
      EXPECT_FALSE(describe(bind->tensor.signature).empty());
    }
  }
  return accepted;
}

TEST(MessagesFuzz, DamagedMessages) {
  fuzz::check_damaged(Random(20'240'601), random_message, check);
}

TEST(MessagesFuzz, EveryByteSetToEveryEndOfItsRange) {
  fuzz::check_every_byte(Random(7), random_message, check);
}

TEST(MessagesFuzz, Noise) {
  Random random(99);
  for (int i = 0; i < 40'000 && !testing::Test::HasFailure(); ++i) {
    Bytes bytes(static_cast<std::size_t>(draw(random, 0, 80)));
    for (std::byte& byte : bytes) byte = fuzz::random_byte(random);
    // A kind that exists, or nearly all noise ends at its first byte.
    const unsigned kinds[] = {1, 2, 3, 16, 17, 18, 19, 20, 21};
    if (!bytes.empty()) bytes[0] = static_cast<std::byte>(kinds[draw(random, 0, 8)]);
    (void)check(bytes);
  }
}

}  // namespace
}  // namespace ronde::runtime
