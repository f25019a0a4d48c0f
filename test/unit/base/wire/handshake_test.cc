// SPDX-License-Identifier: Apache-2.0
// Who believes whom.
#include "base/wire/handshake.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

namespace ronde::base {
namespace {

using Step = Handshake::Step;
using Bytes = std::vector<std::byte>;

Bytes secret_from(std::string_view characters) {
  const auto bytes = std::as_bytes(std::span(characters));
  return {bytes.begin(), bytes.end()};
}

Nonce nonce_of(int number) { return Nonce{static_cast<std::byte>(number), std::byte{1}}; }

// What each end of a handshake concludes: that of rank 0, then that of the rank. `change` damages
// the message of this number on its way.
std::pair<Step, Step> shake(const Bytes& of_zero, const Bytes& of_rank, int changed = -1,
                            std::size_t at = 0) {
  Handshake zero(Handshake::Role::kListener, of_zero, nonce_of(1));
  Handshake rank(Handshake::Role::kCaller, of_rank, nonce_of(2));
  Bytes message = rank.begin();
  std::pair<Step, Step> steps{Step::kGoOn, Step::kGoOn};
  for (int i = 0; i < 4 && !message.empty(); ++i) {
    if (i % 2 == 0 && steps.first != Step::kGoOn) break;  // the listener has let go
    if (i == changed) message.at(at) ^= std::byte{4};
    Bytes answer;
    (i % 2 == 0 ? steps.first : steps.second) =
        i % 2 == 0 ? zero.take(message, answer) : rank.take(message, answer);
    message = std::move(answer);
  }
  return steps;
}

TEST(Handshake, ProvesTheSecretToBoth) {
  const auto secret = secret_from("sixteen bytes...");
  EXPECT_EQ(shake(secret, secret), std::pair(Step::kProven, Step::kProven));
  EXPECT_EQ(shake({}, {}), std::pair(Step::kProven, Step::kProven)) << "ranks of one host";
}

TEST(Handshake, AnotherSecret) {
  const auto one = secret_from("sixteen bytes...");
  EXPECT_EQ(shake(one, secret_from("sixteen bytes..,")),
            std::pair(Step::kWrongSecret, Step::kWrongSecret));
  EXPECT_EQ(shake(one, {}), std::pair(Step::kWrongSecret, Step::kWrongSecret));
  EXPECT_EQ(shake({}, one), std::pair(Step::kWrongSecret, Step::kWrongSecret));
}

TEST(Handshake, EveryBitOfEveryMessageCounts) {
  const auto secret = secret_from("sixteen bytes...");
  for (int message = 0; message < 4; ++message) {
    const std::size_t size = message < 2 ? kOpeningBytes : sizeof(Digest);
    for (std::size_t at = 0; at < size; ++at) {
      EXPECT_NE(shake(secret, secret, message, at), std::pair(Step::kProven, Step::kProven))
          << "message " << message << ", byte " << at;
    }
  }
}

TEST(Handshake, AProofFitsOneConnectionAndOneRole) {
  const auto secret = secret_from("sixteen bytes...");
  const auto proof = [&](int mine, int theirs) {
    Handshake caller(Handshake::Role::kCaller, secret, nonce_of(mine));
    Handshake listener(Handshake::Role::kListener, secret, nonce_of(theirs));
    Bytes opening;
    Bytes answer;
    listener.take(caller.begin(), opening);
    caller.take(opening, answer);
    return answer;
  };
  const Bytes first = proof(1, 2);
  EXPECT_EQ(first, proof(1, 2));
  for (const auto& [mine, theirs] : {std::pair(1, 3), std::pair(3, 2), std::pair(2, 1)}) {
    EXPECT_NE(first, proof(mine, theirs));
  }
}

TEST(Handshake, NoncesAreNew) { EXPECT_NE(*make_nonce(), *make_nonce()); }

}  // namespace
}  // namespace ronde::base
