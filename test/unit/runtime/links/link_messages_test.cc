// SPDX-License-Identifier: Apache-2.0
#include "runtime/links/link_messages.h"

#include <gtest/gtest.h>

#include <variant>

namespace ronde::runtime {
namespace {

using Bytes = std::vector<std::byte>;

Bytes message_bytes(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

template <class Message>
Message decoded_again(const Message& message) {
  const auto decoded = decode_link_message(encode(LinkMessage(message)));
  EXPECT_TRUE(decoded.ok()) << decoded.status().message();
  return std::get<Message>(*decoded);
}

TEST(LinkMessages, WhatIsSentArrives) {
  const auto announcement = decoded_again(RelayedAnnouncement{7, message_bytes({1, 2, 3})});
  EXPECT_EQ(announcement.rank, 7);
  EXPECT_EQ(announcement.announcement, message_bytes({1, 2, 3}));
  const auto ready = decoded_again(ReadyReport{41, 6});
  EXPECT_EQ(ready.entry, 41);
  EXPECT_EQ(ready.generation, 6U);
  const auto closed = decoded_again(ClosedReport{3, 9, 2, {4, 6}});
  EXPECT_EQ(closed.entry, 3);
  EXPECT_EQ(closed.generation, 9U);
  EXPECT_EQ(closed.arrived, 2U);
  EXPECT_EQ(closed.ranks, (std::vector<std::int64_t>{4, 6}));
  EXPECT_EQ(decoded_again(RelayedDecision{message_bytes({9})}).decision, message_bytes({9}));
  decoded_again(GoodBye{});
  EXPECT_TRUE(decoded_again(RollCall{true}).answer);
  EXPECT_FALSE(decoded_again(RollCall{false}).answer);
  collectives::FailureRecord record;
  record.culprit = 5;
  record.reporter = 2;
  record.code = base::Code::kPeerFailed;
  record.text = "rank 5 died";
  record.place = "trainer.cc:7";
  const auto failure = decoded_again(record);
  EXPECT_EQ(failure.culprit, 5);
  EXPECT_EQ(failure.reporter, 2);
  EXPECT_EQ(failure.code, base::Code::kPeerFailed);
  EXPECT_EQ(failure.text, "rank 5 died");
  EXPECT_EQ(failure.place, "trainer.cc:7");
}

TEST(LinkMessages, WhatIsCutOrTooLongIsRefused) {
  const Bytes whole = encode(LinkMessage(ClosedReport{3, 9, 2, {4, 6}}));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(decode_link_message(std::span(whole).first(length)).ok()) << length;
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_link_message(longer).ok());
  EXPECT_FALSE(decode_link_message(message_bytes({200, 1, 2, 3, 4})).ok());
}

TEST(LeaderHello, IsReadAsItWasWritten) {
  const LeaderHello hello{LeaderHello::kVersion, 7};
  const auto read = decode_leader_hello(encode(hello));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, hello);
  EXPECT_FALSE(decode_leader_hello(std::as_bytes(std::span("RondeLdr and more"))).ok());
}

}  // namespace
}  // namespace ronde::runtime
