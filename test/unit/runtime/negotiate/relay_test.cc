// SPDX-License-Identifier: Apache-2.0
// The relay of one host: what goes up once for a whole subtree, what comes down to ranks and
// children, and neighbours whose connections have ended.
#include "runtime/negotiate/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "test/unit/runtime/negotiate/relay_fixture.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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

TEST_P(RelayTest, WhoArrivedForAnEarlierStepIsNotAmongTheAnswers) {
  bind(3, 1);
  EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
  EXPECT_EQ(arrive(1, 3, 1), collectives::Arrival::kLast);
  from_parent(BatchDecision{1, {{3, {}, {}}}});
  good_step();
  batches_heard_ = 1;
  EXPECT_EQ(arrive(0, 3, 1),
            collectives::Arrival::kArrived);  // the other one is still in the batch
  (void)parent_heard();
  from_parent(CloseDecision{3, 2});
  good_step();
  for (int i = 0; i < children(); ++i) from_child(i, ClosedReport{3, 2, 0, {}});
  good_step();
  const auto answer = parent_heard();
  EXPECT_THAT(answer,
              ElementsAre("closed 3/2: 1 arrived of " + std::to_string(shape_.ranks_of(kHost)[0])));
}

TEST_P(RelayTest, WhatWasReportedBeforeAClosingDoesNotCountAfterIt) {
  bind(3, 1);
  EXPECT_EQ(arrive(0, 3, 1), collectives::Arrival::kArrived);
  if (children() > 0) from_child(0, ReadyReport{3, 1});
  good_step();
  from_parent(CloseDecision{3, 2});
  good_step();
  for (int i = 0; i < children(); ++i) {
    // This report was on its way when the CloseDecision arrived.
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
  if (children() == 0) return;  // without children the relay answers at once
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

// Messages may still go through it, until nobody sends or takes one any more.
TEST_P(RelayTest, AParentThatPassesMessagesMayGoOnlyAfterAllHaveLeft) {
  ASSERT_TRUE(parent_->send_down(Frame{0, 5, 3, {std::byte{1}}}).ok());
  for (std::int32_t rank = 1; rank < shape_.ranks(); ++rank) {
    from_parent(DepartedDecision{rank, {}, true});
  }
  good_step();
  EXPECT_TRUE(relay_->may_pass_messages());
  if (children() == 0) {
    parent_.reset();
    EXPECT_EQ(step().code(), base::Code::kPeerFailed);
    return;
  }
  from_parent(DepartedDecision{0, {}, true});
  good_step();
  EXPECT_FALSE(relay_->may_pass_messages());
  parent_.reset();
  good_step();
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

// A rank may leave after the coordinator's departure, and never get its own.
TEST_P(RelayTest, NobodyWaitsForARankOfThisHostThatHasLeft) {
  from_parent(DepartedDecision{0});
  good_step();
  EXPECT_THAT(rank_reads(1), ElementsAre("departed 0"));
  boards_[1].set_state(collectives::PresenceState::kClosed);
  // More than the ring of the decisions takes.
  NoticeDecision notice{std::string(1500, 'x'), false};
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
  EXPECT_THAT(step().message(), HasSubstr("that was not asked for"));
}

}  // namespace
}  // namespace ronde::runtime
