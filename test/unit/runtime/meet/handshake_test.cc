// SPDX-License-Identifier: Apache-2.0
// Who believes whom, and the bytes of a meeting's messages, damaged ones too.
#include "runtime/meet/handshake.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/meet/messages.h"

namespace ronde::runtime {
namespace {

using Step = Handshake::Step;
using Bytes = std::vector<std::byte>;

MeetingSecret secret_from(std::string_view characters) {
  const auto bytes = std::as_bytes(std::span(characters));
  return MeetingSecret({bytes.begin(), bytes.end()});
}

Nonce nonce_of(int number) { return Nonce{static_cast<std::byte>(number), std::byte{1}}; }

// What each end of a handshake concludes: that of rank 0, then that of the rank. `change` damages
// the message of this number on its way.
std::pair<Step, Step> shake(const MeetingSecret& of_zero, const MeetingSecret& of_rank,
                            int changed = -1, std::size_t at = 0) {
  Handshake zero(Handshake::Role::kRankZero, of_zero, nonce_of(1));
  Handshake rank(Handshake::Role::kRank, of_rank, nonce_of(2));
  Bytes message = rank.begin();
  std::pair<Step, Step> steps{Step::kGoOn, Step::kGoOn};
  for (int i = 0; i < 4 && !message.empty(); ++i) {
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
  const auto proof = [&](Handshake::Role role, int mine, int theirs) {
    const auto other =
        role == Handshake::Role::kRank ? Handshake::Role::kRankZero : Handshake::Role::kRank;
    Handshake end(role, secret, nonce_of(mine));
    Bytes answer;
    // The opening of the other end.
    end.take(other == Handshake::Role::kRank
                 ? Handshake(Handshake::Role::kRank, secret, nonce_of(theirs)).begin()
                 : [&] {
                     Handshake zero(Handshake::Role::kRankZero, secret, nonce_of(theirs));
                     Bytes opening;
                     zero.take(Handshake(Handshake::Role::kRank, secret, nonce_of(mine)).begin(),
                               opening);
                     return opening;
                   }(),
             answer);
    return answer;
  };
  const Bytes first = proof(Handshake::Role::kRank, 1, 2);
  EXPECT_EQ(first, proof(Handshake::Role::kRank, 1, 2));
  EXPECT_NE(first, proof(Handshake::Role::kRank, 1, 3));
  EXPECT_NE(first, proof(Handshake::Role::kRank, 3, 2));
  EXPECT_NE(first, proof(Handshake::Role::kRank, 2, 1));
}

TEST(Handshake, NoncesAreNew) { EXPECT_NE(*make_nonce(), *make_nonce()); }

template <class Message>
Message sent(const Message& message) {
  const auto got = decode_meeting_message(encode(message));
  EXPECT_TRUE(got.ok()) << got.status().to_string();
  return got.ok() ? std::get<Message>(*got) : Message();
}

TEST(MeetingMessages, ArriveAsTheyWereSent) {
  const MeetingHello hello{kMeetingVersion, 3,          8,   std::chrono::seconds(5),
                           "node7",         "id of it", 4711};
  EXPECT_EQ(sent(hello), hello);
  const MeetingPart part{7, std::chrono::seconds(3), {1, 2, "no room"}, Bytes(5, std::byte{9})};
  EXPECT_EQ(sent(part).round, 7U);
  EXPECT_EQ(sent(part).patience, std::chrono::seconds(3));
  EXPECT_EQ(sent(part).trouble.text, "no room");
  EXPECT_EQ(sent(part).trouble.rank, 1);
  EXPECT_EQ(sent(part).trouble.culprit, 2);
  EXPECT_EQ(sent(part).bytes, part.bytes);
  const MeetingPart endless{7, base::Nanoseconds::max(), {}, {}};
  EXPECT_LE(sent(endless).patience, std::chrono::hours(24 * 366)) << "it is added to a time";
  const MeetingAll all{4, {Bytes(), Bytes(3, std::byte{1}), Bytes(1, std::byte{2})}};
  EXPECT_EQ(sent(all).round, 4U);
  EXPECT_EQ(sent(all).parts, all.parts);
  const auto status = base::Status::error(base::Code::kDeadline, "too late").with_rank(4);
  EXPECT_EQ(sent(MeetingVerdict::of(status)).status().message(), "too late");
  EXPECT_EQ(sent(MeetingVerdict::of(status)).status().rank(), 4);
  EXPECT_EQ(sent(MeetingVerdict::of(status)).status().code(), base::Code::kDeadline);
}

TEST(MeetingMessages, DamagedOnesAreErrors) {
  const Bytes messages[] = {
      encode(MeetingHello{kMeetingVersion, 3, 8, {}, "node7", "id", 4711}),
      encode(MeetingPart{7, {}, {1, 2, "no room"}, {}}),
      encode(MeetingAll{4, {Bytes(), Bytes(3, std::byte{1})}}),
      encode(MeetingVerdict{base::Code::kDeadline, 1, "late"}),
  };
  std::minstd_rand random(4);
  for (const Bytes& whole : messages) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(decode_meeting_message(std::span(whole).first(size)).ok()) << size;
    }
    for (int i = 0; i < 2000; ++i) {  // any result will do, but no crash and no endless memory
      Bytes damaged = whole;
      for (int change = 0; change < 3; ++change) {
        damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      }
      (void)decode_meeting_message(damaged);
    }
  }
  EXPECT_FALSE(decode_meeting_message({}).ok());
  EXPECT_FALSE(decode_meeting_message(Bytes(1, std::byte{77})).ok());
}

}  // namespace
}  // namespace ronde::runtime
