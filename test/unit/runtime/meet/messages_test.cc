// SPDX-License-Identifier: Apache-2.0
// The bytes of a meeting's messages.
#include "runtime/meet/messages.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ronde::runtime
