// SPDX-License-Identifier: Apache-2.0
// A relay with a board of two ranks on the heap, a parent, and no child or two. The neighbours are
// links at the other ends of socket pairs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/links/tcp_links.h"
#include "runtime/negotiate/relay.h"
#include "test/unit/collectives/boards.h"

namespace ronde::runtime {

using LinksPtr = std::unique_ptr<TcpLinks>;

// Hosts 0 to 3 of two ranks each; this one is host 1, with ranks 2 and 3.
inline constexpr std::int32_t kHost = 1;
inline constexpr std::int32_t kFirst = 2;
inline constexpr std::uint32_t kAll = 2;

inline base::JobShape shape_of_test() {
  const std::array<std::int32_t, 8> leaders{0, 0, 2, 2, 4, 4, 6, 6};
  return base::JobShape::of_leaders(leaders).value();
}

inline std::pair<base::LinkEnd, base::LinkEnd> connection(std::int32_t left, std::int32_t right) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {base::LinkEnd{right, "host " + std::to_string(right), base::FileDescriptor(ends[0])},
          base::LinkEnd{left, "host " + std::to_string(left), base::FileDescriptor(ends[1])}};
}

inline LinksPtr open(LinkEnds ends) {
  auto links = TcpLinks::open(std::move(ends));
  EXPECT_TRUE(links.ok());
  return std::move(*links);
}

// Messages as texts: "ready 3/1", "closed 3/2: 1 arrived of [2]", "announcement of 5", "bind w",
// ...
inline std::string in_words(const Decision& decision) {
  if (const auto* bind = std::get_if<BindDecision>(&decision)) return "bind " + bind->name;
  if (const auto* batch = std::get_if<BatchDecision>(&decision)) {
    return "batch " + std::to_string(batch->sequence);
  }
  if (const auto* close = std::get_if<CloseDecision>(&decision)) {
    return "close " + std::to_string(close->entry);
  }
  if (const auto* left = std::get_if<DepartedDecision>(&decision)) {
    return "departed " + std::to_string(left->rank);
  }
  return "another decision";
}
inline std::string in_words(const LinkMessage& message) {
  if (const auto* ready = std::get_if<ReadyReport>(&message)) {
    return "ready " + std::to_string(ready->entry) + "/" + std::to_string(ready->generation);
  }
  if (const auto* closed = std::get_if<ClosedReport>(&message)) {
    std::string text = "closed " + std::to_string(closed->entry) + "/" +
                       std::to_string(closed->generation) + ": " + std::to_string(closed->arrived) +
                       " arrived of";
    for (const std::int64_t rank : closed->ranks) text += " " + std::to_string(rank);
    return text;
  }
  if (const auto* announcement = std::get_if<RelayedAnnouncement>(&message)) {
    return "announcement of " + std::to_string(announcement->rank);
  }
  if (const auto* decision = std::get_if<RelayedDecision>(&message)) {
    return in_words(decode_decision(decision->decision).value());
  }
  return "another message";
}

using Words = std::vector<std::string>;

class RelayTest : public ::testing::TestWithParam<int> {
 protected:
  RelayTest() : shape_(shape_of_test()), boards_(collectives::make_boards(geometry())) {
    LinkEnds own;
    auto [down, up] = connection(0, kHost);
    own.parent = std::move(up);
    LinkEnds of_root;
    of_root.children.push_back(std::move(down));
    parent_ = open(std::move(of_root));
    for (int i = 0; i < children(); ++i) {
      auto [lower, upper] = connection(kHost, 2 + i);
      own.children.push_back(std::move(lower));
      LinkEnds of_child;
      of_child.parent = std::move(upper);
      children_.push_back(open(std::move(of_child)));
    }
    links_ = open(std::move(own));
    relay_ = std::make_unique<Relay>(boards_[0], shape_, kHost, *links_, clock_);
    for (const collectives::Board& board : boards_) {
      announcements_.push_back(board.announce_writer());
      decisions_.push_back(board.decision_reader());
    }
  }
  static collectives::BoardGeometry geometry() {
    return {.ranks = kAll,
            .announce_bytes = 4096,
            .decision_bytes = 4096,
            .entries = 8,
            .slot_bytes = 128};
  }
  static int children() { return GetParam(); }

  base::Status step() { return relay_->step(true).status(); }
  void good_step() {
    const base::Status stepped = step();
    ASSERT_TRUE(stepped.ok()) << stepped.message();
  }
  static Words heard(TcpLinks& links) {
    Words words;
    const auto read = links.poll([&](Links::From, const LinkMessage& message) {
      words.push_back(in_words(message));
      return base::Status();
    });
    EXPECT_TRUE(read.ok());
    return words;
  }
  Words parent_heard() { return heard(*parent_); }
  void from_parent(const Decision& decision) {
    ASSERT_TRUE(parent_->send_down(RelayedDecision{encode(decision)}).ok());
    ASSERT_TRUE(parent_->flush().ok());
  }
  void from_child(int child, const LinkMessage& message) {
    ASSERT_TRUE(children_[base::narrow<std::size_t>(child)]->send_up(message).ok());
    ASSERT_TRUE(children_[base::narrow<std::size_t>(child)]->flush().ok());
  }
  // The decisions that a rank of this host reads.
  Words rank_reads(std::size_t position) {
    Words words;
    for (;;) {
      const auto bytes = decisions_[position].poll();
      EXPECT_TRUE(bytes.ok());
      if (!bytes->has_value()) return words;
      words.push_back(in_words(decode_decision(**bytes).value()));
    }
  }
  collectives::Arrival arrive(std::size_t position, std::int32_t entry, std::uint32_t generation) {
    const collectives::Board& board = boards_[position];
    board.mark_arrived(entry, batches_heard_);
    const auto arrival = board.arrive(entry, generation, kAll);
    if (arrival == collectives::Arrival::kStale) board.unmark_arrived(entry);
    if (arrival == collectives::Arrival::kLast) board.push_ready(entry);
    return arrival;
  }
  void bind(std::int32_t entry, std::uint32_t generation) {
    from_parent(BindDecision{entry, generation, "w", {}});
    good_step();
    for (std::size_t position = 0; position < kAll; ++position) {
      EXPECT_THAT(rank_reads(position), testing::ElementsAre("bind w"));
    }
    for (const LinksPtr& child : children_)
      EXPECT_THAT(heard(*child), testing::ElementsAre("bind w"));
  }
  // All ranks of the job but this host's.
  void children_ready(std::int32_t entry, std::uint32_t generation) {
    for (int i = 0; i < children(); ++i) from_child(i, ReadyReport{entry, generation});
  }

  base::JobShape shape_;
  base::ManualClock clock_;
  std::vector<collectives::Board> boards_;
  LinksPtr parent_, links_;
  std::vector<LinksPtr> children_;
  std::unique_ptr<Relay> relay_;
  std::uint64_t batches_heard_ = 0;  // how many the ranks of this host have received
  std::vector<collectives::StreamWriter> announcements_;
  std::vector<collectives::StreamReader> decisions_;
};

}  // namespace ronde::runtime
