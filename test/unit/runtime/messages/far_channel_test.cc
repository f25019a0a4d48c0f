// SPDX-License-Identifier: Apache-2.0
// How much a sender may have on its way to a rank of another host.
#include "runtime/messages/far_channel.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ronde::runtime {
namespace {

class FarChannelTest : public ::testing::Test {
 protected:
  const FarChannel::Send send_ = [this](std::int32_t to, const Record& record, auto bytes) {
    EXPECT_EQ(to, 3);
    kinds_.push_back(record.kind);
    sent_ += bytes.size();
    return base::Status();
  };
  std::vector<RecordKind> kinds_;
  std::size_t sent_ = 0;
  FarChannel channel_{3, send_};
  FarTaken taken_;
  const std::vector<std::byte> kibibyte_ = std::vector<std::byte>(1024);
};

TEST_F(FarChannelTest, ChunksWaitForThoseBeforeThemToBeTaken) {
  const Record chunk{.kind = RecordKind::kChunk};
  for (std::uint64_t i = 0; i < FarChannel::kWindow; ++i) {
    EXPECT_TRUE(channel_.try_post(chunk, kibibyte_).value());
  }
  EXPECT_FALSE(channel_.try_post(chunk, kibibyte_).value());
  EXPECT_EQ(sent_, FarChannel::kWindow * 1024);
  std::uint64_t taken = 1;
  while (!taken_.take_chunk()) ++taken;
  EXPECT_LT(taken, FarChannel::kWindow) << "the sender would stand still between two windows";
  channel_.on_taken(taken_.tell());
  for (std::uint64_t i = 0; i < taken; ++i) {
    EXPECT_TRUE(channel_.try_post(chunk, kibibyte_).value());
  }
  EXPECT_FALSE(channel_.try_post(chunk, kibibyte_).value());
}

TEST_F(FarChannelTest, SmallMessagesAreOfferedOnceTooManyAreUntaken) {
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{0}}) {
    std::uint64_t sent = 0;
    for (; channel_.takes(bytes); ++sent) {
      ASSERT_TRUE(channel_.post_message({}, std::span(kibibyte_).first(bytes)).ok());
    }
    EXPECT_LE(sent * FarChannel::cost(bytes), FarChannel::kMostUntaken);
    bool told = false;
    for (std::uint64_t i = 0; i < sent; ++i) {
      if (!taken_.take_message(bytes)) continue;
      told = true;
      channel_.on_taken(taken_.tell());
      EXPECT_TRUE(channel_.takes(bytes));
    }
    EXPECT_TRUE(told);
    channel_.on_taken(taken_.tell());
  }
}

}  // namespace
}  // namespace ronde::runtime
