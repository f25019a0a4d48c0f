// SPDX-License-Identifier: Apache-2.0
// The bytes of a meeting's messages, damaged ones too.
#include "runtime/meet/messages.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ronde::runtime {
namespace {

using Bytes = std::vector<std::byte>;

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
