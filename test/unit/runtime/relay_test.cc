// SPDX-License-Identifier: Apache-2.0
// The relay of one host, with a board of two ranks on the heap, a parent, and no child or two. The
// neighbours are links at the other ends of socket pairs.
#include "runtime/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/leader_links.h"
#include "test/unit/collectives/boards.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using LinksPtr = std::unique_ptr<LeaderLinks>;

// Hosts 0 to 3 of two ranks each; this one is host 1, with ranks 2 and 3.
constexpr std::int32_t kHost = 1;
constexpr std::int32_t kFirst = 2;
constexpr std::uint32_t kAll = 2;

collectives::JobShape shape_of_test() {
  const std::array<std::int32_t, 8> leaders{0, 0, 2, 2, 4, 4, 6, 6};
  return collectives::JobShape::of_leaders(leaders).value();
}

std::pair<LinkEnd, LinkEnd> connection(std::int32_t left, std::int32_t right) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {LinkEnd{right, "host " + std::to_string(right), collectives::FileDescriptor(ends[0])},
          LinkEnd{left, "host " + std::to_string(left), collectives::FileDescriptor(ends[1])}};
}

LinksPtr open(HostLinks ends) {
  auto links = LeaderLinks::open(std::move(ends));
  EXPECT_TRUE(links.ok());
  return std::move(*links);
}

// In words: "ready 3/1", "closed 3/2: 1 arrived of [2]", "announcement of 5", "bind w", ...
std::string in_words(const Decision& decision) {
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
std::string in_words(const LinkMessage& message) {
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
    HostLinks own;
    auto [down, up] = connection(0, kHost);
    own.parent = std::move(up);
    HostLinks of_root;
    of_root.children.push_back(std::move(down));
    parent_ = open(std::move(of_root));
    for (int i = 0; i < children(); ++i) {
      auto [lower, upper] = connection(kHost, 2 + i);
      own.children.push_back(std::move(lower));
      HostLinks of_child;
      of_child.parent = std::move(upper);
      children_.push_back(open(std::move(of_child)));
    }
    links_ = open(std::move(own));
    relay_ = std::make_unique<Relay>(boards_[0], shape_, kHost, *links_);
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
  static Words heard(LeaderLinks& links) {
    Words words;
    const auto read = links.poll([&](LeadLinks::From, const LinkMessage& message) {
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
  // What a rank of this host reads of the decisions.
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
    board.mark_arrived(entry, true);
    const auto arrival = board.arrive(entry, generation, kAll);
    if (arrival == collectives::Arrival::kStale) board.mark_arrived(entry, false);
    if (arrival == collectives::Arrival::kLast) board.push_ready(entry);
    return arrival;
  }
  void bind(std::int32_t entry, std::uint32_t generation) {
    from_parent(BindDecision{entry, generation, "w", {}});
    good_step();
    for (std::size_t position = 0; position < kAll; ++position) {
      EXPECT_THAT(rank_reads(position), ElementsAre("bind w"));
    }
    for (const LinksPtr& child : children_) EXPECT_THAT(heard(*child), ElementsAre("bind w"));
  }
  // All but this host's ranks.
  void children_ready(std::int32_t entry, std::uint32_t generation) {
    for (int i = 0; i < children(); ++i) from_child(i, ReadyReport{entry, generation});
  }

  collectives::JobShape shape_;
  std::vector<collectives::Board> boards_;
  LinksPtr parent_, links_;
  std::vector<LinksPtr> children_;
  std::unique_ptr<Relay> relay_;
  std::vector<collectives::StreamWriter> announcements_;
  std::vector<collectives::StreamReader> decisions_;
};

INSTANTIATE_TEST_SUITE_P(Children, RelayTest, testing::Values(0, 2));

TEST_P(RelayTest, AnnouncementsGoUpWithTheRankThatMadeThem) {
  const std::vector<std::byte> bytes = encode(Announcement(ClosingAnnouncement{}));
  ASSERT_TRUE(announcements_[1].post(bytes).ok());
  for (int i = 0; i < children(); ++i) from_child(i, RelayedAnnouncement{4 + 2 * i, bytes});
  good_step();
  Words expected{"announcement of " + std::to_string(kFirst + 1)};
  for (int i = 0; i < children(); ++i) {
    expected.push_back("announcement of " + std::to_string(4 + 2 * i));
  }
  EXPECT_EQ(parent_heard(), expected);
}

TEST_P(RelayTest, ASubtreeReportsOnceWhenAllOfItIsReady) {
  bind(3, 1);
  for (int time = 1; time <= 3; ++time) {
    EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
    good_step();
    EXPECT_THAT(parent_heard(), IsEmpty());
    EXPECT_EQ(arrive(1, 3, 1), collectives::Arrival::kLast);
    good_step();
    for (int i = 0; i < children(); ++i) {
      EXPECT_THAT(parent_heard(), IsEmpty()) << "child " << i << " is missing";
      from_child(i, ReadyReport{3, 1});
      good_step();
    }
    EXPECT_THAT(parent_heard(), ElementsAre("ready 3/1"));
    BatchDecision batch{base::narrow<std::uint64_t>(time), {}};
    batch.items.push_back({3, {}, {}});
    from_parent(batch);
    good_step();
    // The words were set back before any rank could read of the batch.
    EXPECT_EQ(boards_[0].arrival(3).count, 0U);
    EXPECT_EQ(boards_[0].arrival(3).generation, 1U);
    const std::string text = "batch " + std::to_string(time);
    EXPECT_THAT(rank_reads(0), ElementsAre(text));
    EXPECT_THAT(rank_reads(1), ElementsAre(text));
    for (const LinksPtr& child : children_) EXPECT_THAT(heard(*child), ElementsAre(text));
    good_step();
    EXPECT_THAT(parent_heard(), IsEmpty());
  }
}

TEST_P(RelayTest, ABatchOfAnEntryWithoutArrivalsChangesNoWord) {
  bind(3, 1);
  BatchDecision batch{1, {}};
  batch.items.push_back({3, {}, {}});
  from_parent(batch);
  good_step();
  EXPECT_EQ(boards_[0].arrival(3).count, 0U);
  EXPECT_THAT(rank_reads(1), ElementsAre("batch 1"));
}

TEST_P(RelayTest, BindingAnEntryEndsTheGenerationBefore) {
  bind(3, 1);
  EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
  bind(3, 5);
  EXPECT_EQ(boards_[0].arrival(3).generation, 5U);
  EXPECT_EQ(boards_[0].arrival(3).count, 0U);
  EXPECT_EQ(arrive(1, 3, 1), collectives::Arrival::kStale);
}

TEST_P(RelayTest, ReportsOfTheGenerationBeforeABindingDoNotCount) {
  bind(3, 1);
  children_ready(3, 1);
  good_step();
  bind(3, 5);
  EXPECT_EQ(arrive(0, 3, 5), collectives::Arrival::kArrived);
  EXPECT_EQ(arrive(1, 3, 5), collectives::Arrival::kLast);
  good_step();
  Words reports = parent_heard();
  EXPECT_EQ(reports.size(), children() > 0 ? 0U : 1U);
  children_ready(3, 5);
  good_step();
  if (children() > 0) reports = parent_heard();
  EXPECT_THAT(reports, ElementsAre("ready 3/5"));
}

TEST_P(RelayTest, AnswersToAClosingAreSummedUp) {
  bind(3, 1);
  EXPECT_EQ(arrive(1, 3, 1), collectives::Arrival::kArrived);
  from_parent(CloseDecision{3, 2});
  good_step();
  EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kStale);
  if (children() == 2) {
    for (const LinksPtr& child : children_) EXPECT_THAT(heard(*child), ElementsAre("close 3"));
    EXPECT_THAT(parent_heard(), IsEmpty());
    from_child(1, ClosedReport{3, 2, 2, {6, 7}});
    good_step();
    EXPECT_THAT(parent_heard(), IsEmpty());
    from_child(0, ClosedReport{3, 2, 0, {}});
    good_step();
    EXPECT_THAT(parent_heard(), ElementsAre("closed 3/2: 3 arrived of 3 6 7"));
  } else {
    EXPECT_THAT(parent_heard(), ElementsAre("closed 3/2: 1 arrived of 3"));
  }
  EXPECT_THAT(rank_reads(0), IsEmpty()) << "ranks do not hear of it";
}

TEST_P(RelayTest, WhatWasReportedBeforeAClosingDoesNotCountAfterIt) {
  bind(3, 1);
  EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
  if (children() > 0) from_child(0, ReadyReport{3, 1});
  good_step();
  from_parent(CloseDecision{3, 2});
  good_step();
  for (int i = 0; i < children(); ++i) {
    // On its way when the question came.
    if (i == 1) from_child(i, ReadyReport{3, 1});
    from_child(i, ClosedReport{3, 2, 2, {4 + 2 * i, 5 + 2 * i}});
  }
  good_step();
  ASSERT_EQ(parent_heard().size(), 1U);
  for (const LinksPtr& child : children_) EXPECT_THAT(heard(*child), ElementsAre("close 3"));
  bind(3, 2);
  EXPECT_EQ(arrive(0, 3, 2), collectives::Arrival::kArrived);
  EXPECT_EQ(arrive(1, 3, 2), collectives::Arrival::kLast);
  good_step();
  if (children() == 2) {
    from_child(0, ReadyReport{3, 2});
    good_step();
    EXPECT_THAT(parent_heard(), IsEmpty());
    from_child(1, ReadyReport{3, 2});
    good_step();
  }
  EXPECT_THAT(parent_heard(), ElementsAre("ready 3/2"));
}

TEST_P(RelayTest, AReportOfAGenerationThatWasClosedMeanwhileSaysNothing) {
  bind(3, 1);
  EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
  EXPECT_EQ(boards_[1].arrive(3, 1, kAll), collectives::Arrival::kLast);
  from_parent(CloseDecision{3, 2});
  good_step();
  boards_[1].push_ready(3);  // the last arriver was slow
  for (int i = 0; i < children(); ++i) from_child(i, ClosedReport{3, 2, 0, {}});
  good_step();
  ASSERT_EQ(parent_heard().size(), 1U) << "the answer, and no report";
}

// The same, when the next generation is complete already.
TEST_P(RelayTest, TheRanksHereReportOnceAStep) {
  bind(3, 1);
  for (std::uint64_t time = 1; time <= 2; ++time) {
    EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
    EXPECT_EQ(arrive(1, 3, 1), collectives::Arrival::kLast);
    boards_[1].push_ready(3);
    good_step();
    if (children() > 0) {
      from_child(0, ReadyReport{3, 1});
      good_step();
      EXPECT_THAT(parent_heard(), IsEmpty());
      from_child(1, ReadyReport{3, 1});
      good_step();
    }
    EXPECT_THAT(parent_heard(), ElementsAre("ready 3/1"));
    BatchDecision batch{time, {}};
    batch.items.push_back({3, {}, {}});
    from_parent(batch);
    good_step();
  }
}

TEST_P(RelayTest, AnEntryThatIsClosedAgainAsksAgain) {
  if (children() == 0) return;  // it answers at once
  bind(3, 1);
  from_parent(CloseDecision{3, 2});
  good_step();
  from_child(0, ClosedReport{3, 2, 1, {4}});
  from_parent(CloseDecision{3, 3});
  good_step();
  from_child(1, ClosedReport{3, 2, 1, {6}});
  from_child(1, ClosedReport{3, 3, 0, {}});
  good_step();
  EXPECT_THAT(parent_heard(), IsEmpty());
  from_child(0, ClosedReport{3, 3, 0, {}});
  good_step();
  EXPECT_THAT(parent_heard(), ElementsAre("closed 3/3: 0 arrived of"));
}

TEST_P(RelayTest, DecisionsReachTheRanksAndTheChildrenInOrder) {
  from_parent(BindDecision{0, 1, "a", {}});
  from_parent(BindDecision{1, 1, "b", {}});
  from_parent(BatchDecision{1, {}});
  good_step();
  const Words all{"bind a", "bind b", "batch 1"};
  EXPECT_EQ(rank_reads(0), all);
  EXPECT_EQ(rank_reads(1), all);
  for (const LinksPtr& child : children_) EXPECT_EQ(heard(*child), all);
  EXPECT_TRUE(relay_->drained());
}

TEST_P(RelayTest, AParentThatEndsBeforeAnybodyHasLeftEndsTheJob) {
  parent_.reset();
  const base::Status lost = step();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.code(), base::Code::kPeerFailed);
  EXPECT_THAT(lost.message(), HasSubstr("host 0 is gone: the connection to its leader, rank 0"));
  EXPECT_EQ(lost.rank(), 0);
}

TEST_P(RelayTest, AParentThatEndsAfterSomebodyHasLeftMeansThatTheRootHasLeft) {
  from_parent(DepartedDecision{5});
  good_step();
  EXPECT_THAT(rank_reads(1), ElementsAre("departed 5"));
  parent_.reset();
  good_step();
  EXPECT_THAT(rank_reads(1), ElementsAre("departed 0"));
  for (const LinksPtr& child : children_) {
    EXPECT_THAT(heard(*child), ElementsAre("departed 5", "departed 0"));
  }
  good_step();
  EXPECT_THAT(rank_reads(1), IsEmpty()) << "once is enough";
}

TEST_P(RelayTest, AChildMayGoOnlyAfterSomebodyHasLeft) {
  if (children() == 0) return;
  children_[1].reset();
  const base::Status lost = step();
  EXPECT_EQ(lost.code(), base::Code::kPeerFailed);
  EXPECT_THAT(lost.message(), HasSubstr("rank 6"));
  from_parent(DepartedDecision{1});
  good_step();
  children_[0].reset();
  good_step();
  EXPECT_THAT(rank_reads(0), ElementsAre("departed 1"));
}

// It may have left upon the good-bye of the coordinator, and never get one of its own.
TEST_P(RelayTest, NobodyWaitsForARankOfThisHostThatHasLeft) {
  from_parent(DepartedDecision{0});
  good_step();
  EXPECT_THAT(rank_reads(1), ElementsAre("departed 0"));
  boards_[1].set_state(collectives::PresenceState::kClosed);
  // More than the ring of the decisions takes.
  NoticeDecision notice{"w", std::string(1500, 'x')};
  for (int i = 0; i < 5; ++i) {
    from_parent(notice);
    good_step();
    (void)rank_reads(0);
    good_step();
  }
  EXPECT_TRUE(relay_->drained());
}

TEST_P(RelayTest, AFailureGoesToTheBoard) {
  collectives::FailureRecord record;
  record.culprit = 5;
  record.text = "rank 5 died";
  ASSERT_TRUE(parent_->send_down(record).ok());
  ASSERT_TRUE(parent_->flush().ok());
  good_step();
  ASSERT_TRUE(boards_[1].failed());
  EXPECT_EQ(boards_[1].failure()->text, "rank 5 died");
  EXPECT_EQ(boards_[1].failure()->culprit, 5);
}

TEST_P(RelayTest, MessagesThatGoTheWrongWayAreErrors) {
  const std::vector<std::byte> announcement = encode(Announcement(ClosingAnnouncement{}));
  for (const LinkMessage& message :
       {LinkMessage(ReadyReport{1, 1}), LinkMessage(ClosedReport{1, 1, 0, {}}),
        LinkMessage(RelayedAnnouncement{0, announcement})}) {
    ASSERT_TRUE(parent_->send_down(message).ok());
    ASSERT_TRUE(parent_->flush().ok());
    const base::Status status = step();
    EXPECT_EQ(status.code(), base::Code::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("the wrong way"));
  }
  for (int i = 0; i < children(); ++i) {
    from_child(i, RelayedDecision{encode(Decision(EvictDecision{1}))});
    EXPECT_THAT(step().message(), HasSubstr("the wrong way"));
  }
}

TEST_P(RelayTest, EntriesBeyondThePlanAndRanksBeyondTheJobAreErrors) {
  BatchDecision batch{1, {}};
  batch.items.push_back({8, {}, {}});
  for (const Decision& decision :
       {Decision(BindDecision{8, 1, "w", {}}), Decision(CloseDecision{-1, 1}), Decision(batch)}) {
    from_parent(decision);
    EXPECT_THAT(step().message(), HasSubstr("of a plan of 8"));
  }
  from_parent(DepartedDecision{8});
  EXPECT_THAT(step().message(), HasSubstr("no rank 8 can leave"));
  if (children() == 0) return;
  from_child(0, ReadyReport{8, 1});
  EXPECT_THAT(step().message(), HasSubstr("of a plan of 8"));
  from_child(0, ClosedReport{1, 1, 0, {}});
  EXPECT_THAT(step().message(), HasSubstr("that nobody asked for"));
}

}  // namespace
}  // namespace ronde::runtime
