// SPDX-License-Identifier: Apache-2.0
// The links of a leader, over socket pairs: a parent and two children.
#include "runtime/links/tcp_links.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

namespace ronde::runtime {
namespace {

using From = TcpLinks::From;
using LinksPtr = std::unique_ptr<TcpLinks>;

// Two ends of one connection.
std::pair<base::LinkEnd, base::LinkEnd> connection(std::int32_t left, std::int32_t right) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {base::LinkEnd{right, "host " + std::to_string(right), base::FileDescriptor(ends[0])},
          base::LinkEnd{left, "host " + std::to_string(left), base::FileDescriptor(ends[1])}};
}

LinksPtr open(LinkEnds ends) {
  auto links = TcpLinks::open(std::move(ends));
  EXPECT_TRUE(links.ok());
  return std::move(*links);
}

bool readable(int fd) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, 0) > 0;
}

class TcpLinksTest : public ::testing::Test {
 protected:
  TcpLinksTest() {
    auto [top, middle] = connection(0, 1);
    auto [upper, left] = connection(1, 2);
    auto [also_upper, right] = connection(1, 3);
    LinkEnds of_root;
    of_root.children.push_back(std::move(top));
    LinkEnds of_middle;
    of_middle.parent = std::move(middle);
    of_middle.children.push_back(std::move(upper));
    of_middle.children.push_back(std::move(also_upper));
    LinkEnds of_left;
    of_left.parent = std::move(left);
    LinkEnds of_right;
    of_right.parent = std::move(right);
    root_ = open(std::move(of_root));
    middle_ = open(std::move(of_middle));
    left_ = open(std::move(of_left));
    right_ = open(std::move(of_right));
  }

  // All messages that have arrived, as texts.
  static std::vector<std::string> read(TcpLinks& links) {
    std::vector<std::string> heard;
    const auto work = links.poll([&](From from, const LinkMessage& message) {
      const std::string who = from == From::kParent ? "parent: " : "child: ";
      if (const auto* ready = std::get_if<ReadyReport>(&message)) {
        heard.push_back(who + "ready " + std::to_string(ready->entry));
      } else if (const auto* record = std::get_if<collectives::FailureRecord>(&message)) {
        heard.push_back(who + record->text);
      }
      return base::Status();
    });
    EXPECT_TRUE(work.ok()) << work.status().message();
    EXPECT_TRUE(links.flush().ok());
    return heard;
  }

  LinksPtr root_, middle_, left_, right_;
};

using Heard = std::vector<std::string>;

TEST_F(TcpLinksTest, MessagesGoUpAndDown) {
  EXPECT_EQ(root_->children(), 1);
  EXPECT_EQ(middle_->children(), 2);
  EXPECT_FALSE(readable(middle_->fd()));
  ASSERT_TRUE(left_->send_up(ReadyReport{5, 1}).ok());
  ASSERT_TRUE(left_->flush().ok());
  EXPECT_TRUE(readable(middle_->fd()));
  EXPECT_EQ(read(*middle_), (Heard{"child: ready 5"}));
  EXPECT_FALSE(readable(middle_->fd()));
  ASSERT_TRUE(middle_->send_down(ReadyReport{6, 1}).ok());
  ASSERT_TRUE(middle_->flush().ok());
  EXPECT_EQ(read(*left_), (Heard{"parent: ready 6"}));
  EXPECT_EQ(read(*right_), (Heard{"parent: ready 6"}));
  EXPECT_EQ(read(*root_), Heard());
}

TEST_F(TcpLinksTest, WhatASocketDoesNotTakeGoesOutLater) {
  const RelayedDecision large{std::vector<std::byte>(4 << 20)};
  ASSERT_TRUE(root_->send_down(large).ok());
  auto flushed = root_->flush();
  ASSERT_TRUE(flushed.ok());
  EXPECT_FALSE(*flushed);
  bool whole = false;
  for (int i = 0; i < 1000 && !whole; ++i) {
    const auto work = middle_->poll([&](From, const LinkMessage& message) {
      whole = std::get<RelayedDecision>(message).decision == large.decision;
      return base::Status();
    });
    ASSERT_TRUE(work.ok());
    // Room in the socket makes the sender's descriptor readable.
    if (!whole) {
      EXPECT_TRUE(readable(root_->fd()));
      ASSERT_TRUE(root_->poll([](From, const LinkMessage&) { return base::Status(); }).ok());
      ASSERT_TRUE(root_->flush().ok());
    }
  }
  EXPECT_TRUE(whole);
  EXPECT_FALSE(readable(root_->fd()));
}

TEST_F(TcpLinksTest, ALostNeighbourIsReportedOnce) {
  ASSERT_TRUE(right_->send_up(ReadyReport{5, 1}).ok());
  ASSERT_TRUE(right_->flush().ok());
  right_.reset();
  EXPECT_FALSE(middle_->take_lost().has_value());
  EXPECT_EQ(read(*middle_), (Heard{"child: ready 5"}));
  const auto lost = middle_->take_lost();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->side, From::kChild);
  EXPECT_EQ(lost->host, 3);
  EXPECT_FALSE(middle_->take_lost().has_value());
  // A lost link must not be watched, because its descriptor stays readable.
  EXPECT_FALSE(readable(middle_->fd()));
  // The other links still work.
  ASSERT_TRUE(middle_->send_down(ReadyReport{7, 1}).ok());
  ASSERT_TRUE(middle_->flush().ok());
  EXPECT_EQ(read(*left_), (Heard{"parent: ready 7"}));
}

TEST_F(TcpLinksTest, TheLastWordsReachEveryNeighbour) {
  collectives::FailureRecord record;
  record.code = base::Code::kPeerFailed;
  record.text = "rank 4 died";
  middle_->send_failure(record);
  middle_.reset();
  EXPECT_EQ(read(*root_), (Heard{"child: rank 4 died"}));
  EXPECT_EQ(read(*left_), (Heard{"parent: rank 4 died"}));
  EXPECT_EQ(read(*right_), (Heard{"parent: rank 4 died"}));
}

TEST_F(TcpLinksTest, AGoodByeIsToldApartFromAnAccident) {
  left_->send_good_bye();
  left_.reset();
  right_.reset();
  EXPECT_EQ(read(*middle_), Heard());
  for (int i = 0; i < 2; ++i) {
    const auto lost = middle_->take_lost();
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->good_bye, lost->host == 2) << lost->host;
  }
}

TEST_F(TcpLinksTest, WhoDoesNotAnswerTheRollIsNamed) {
  EXPECT_TRUE(middle_->silent().empty());
  ASSERT_TRUE(middle_->call_roll().ok());
  ASSERT_TRUE(middle_->flush().ok());
  EXPECT_EQ(middle_->silent().size(), 3U);
  // The answer to a roll call is not handed to the agent as a message.
  EXPECT_EQ(read(*root_), Heard());
  EXPECT_EQ(read(*left_), Heard());
  EXPECT_EQ(read(*middle_), Heard());
  for (const bool again : {false, true}) {
    ASSERT_TRUE(!again || middle_->call_roll().ok());  // which takes no answer back
    const auto silent = middle_->silent();
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent.front().host, 3);
  }
}

TEST_F(TcpLinksTest, AMessageThatCannotBeUnderstoodNamesItsSender) {
  auto [stranger, end] = connection(9, 8);
  LinkEnds of_victim;
  of_victim.parent = std::move(end);
  const LinksPtr victim = open(std::move(of_victim));
  base::FrameSocket link(std::move(stranger));
  const std::vector<std::byte> garbage(3, std::byte{200});
  ASSERT_TRUE(link.send(garbage).ok());
  const auto read = victim->poll([](From, const LinkMessage&) { return base::Status(); });
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("host 9"), std::string::npos);
}

}  // namespace
}  // namespace ronde::runtime
