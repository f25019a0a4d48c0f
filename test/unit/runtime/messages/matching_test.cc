// SPDX-License-Identifier: Apache-2.0
// Which message belongs to which receive.
#include "runtime/messages/matching.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace ronde::runtime {
namespace {

using Receive = std::shared_ptr<int>;
using Match = Matching<Receive, std::string>;
constexpr std::int32_t kAny = MessageRequest::kAnyRank;

Receive receive_number(int number) { return std::make_shared<int>(number); }

TEST(MessageMatching, KeepsTheOrderOfEachSenderAndTag) {
  Match match;
  match.store(1, 0, "a");
  match.store(1, 2, "b");
  match.store(1, 0, "c");
  match.store(7, 0, "d");
  EXPECT_EQ(match.arrived(), 4U);
  EXPECT_EQ(match.take_arrived(1, 2), std::pair(2, std::string("b")));
  EXPECT_EQ(match.take_arrived(7, 0), std::pair(0, std::string("d")));
  EXPECT_EQ(match.take_arrived(1, 0), std::pair(0, std::string("a")));
  EXPECT_EQ(match.take_arrived(1, 0), std::pair(0, std::string("c")));
  EXPECT_FALSE(match.take_arrived(1, 0).has_value());
  EXPECT_EQ(match.arrived(), 0U);
}

TEST(MessageMatching, GivesAnyRankWhatCameFirst) {
  Match match;
  match.store(1, 5, "a");
  match.store(1, 3, "b");
  EXPECT_EQ(match.take_arrived(1, kAny), std::pair(5, std::string("a")));
  EXPECT_EQ(match.take_arrived(1, kAny), std::pair(3, std::string("b")));
}

TEST(MessageMatching, GivesAMessageToWhoeverAskedFirst) {
  Match match;
  match.post(1, 4, receive_number(1));
  match.post(1, kAny, receive_number(2));
  match.post(1, 3, receive_number(3));
  match.post(2, 3, receive_number(4));
  EXPECT_EQ(*match.take_posted(1, 3), 2);
  EXPECT_EQ(*match.take_posted(1, 3), 3);
  EXPECT_EQ(match.take_posted(1, 3), nullptr);
  EXPECT_EQ(*match.take_posted(1, 4), 1);
  EXPECT_EQ(*match.take_posted(2, 3), 4);
}

TEST(MessageMatching, ForgetsAndHandsOutWhatIsLeft) {
  Match match;
  const Receive gone = receive_number(1);
  match.post(1, 0, gone);
  match.post(1, 0, receive_number(2));
  match.remove(1, gone);
  match.remove(9, gone);
  EXPECT_EQ(*match.take_posted(1, 0), 2);
  for (std::int64_t tag = 0; tag < 3000; ++tag) match.store(tag, 1, std::to_string(tag));
  for (std::int64_t tag = 0; tag < 2990; ++tag) EXPECT_TRUE(match.take_arrived(tag, 1));
  const auto left = match.take_all_arrived();
  ASSERT_EQ(left.size(), 10U);
  EXPECT_EQ(left.front().second, "2990");
  EXPECT_EQ(match.arrived(), 0U);
}

}  // namespace
}  // namespace ronde::runtime
