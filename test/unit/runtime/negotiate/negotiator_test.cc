// SPDX-License-Identifier: Apache-2.0
// The negotiator, case by case. Random and exhaustive schedules are in test/property.
#include "runtime/negotiate/negotiator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "test/unit/runtime/negotiate/negotiator_fixture.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Negotiator, ANewTensorIsBoundAndBatchedWhenAllRanksHaveSaidIt) {
  Job job(2, 4);
  job.request(0, "w");
  EXPECT_THAT(job.decisions(), IsEmpty());
  EXPECT_FALSE(job.negotiator.has_ready());
  EXPECT_FALSE(job.negotiator.next_batch(kPlenty).has_value());
  job.request(1, "w");
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 1U);
  const auto bind = std::get<BindDecision>(decisions[0]);
  EXPECT_EQ(bind.entry, 0);
  EXPECT_EQ(bind.name, "w");
  EXPECT_TRUE(bind.tensor.signature == plain());
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_FALSE(job.negotiator.has_ready());
  EXPECT_THAT(job.decisions(), IsEmpty());
}

TEST(Negotiator, APlannedTensorNeedsNoNames) {
  Job job(2, 4);
  job.bind("w");
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(job.arrive(0, "w"));
    EXPECT_FALSE(job.negotiator.has_ready());
    EXPECT_TRUE(job.arrive(1, "w"));  // the last one reports
    EXPECT_TRUE(job.negotiator.has_ready());
    EXPECT_THAT(job.decisions(), IsEmpty());
    EXPECT_THAT(job.batch(), ElementsAre("w"));
  }
}

TEST(Negotiator, SequenceNumbersHaveNoGaps) {
  Job job(1, 4);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    job.request(0, "t" + std::to_string(i));
    (void)job.decisions();
    EXPECT_FALSE(job.negotiator.next_batch(kPlenty)->sequence != i);
    EXPECT_FALSE(job.negotiator.next_batch(kPlenty).has_value());
  }
}

TEST(Negotiator, ReportsOfEntriesThatAreNotThereAreIgnored) {
  Job job(2, 4);
  job.negotiator.on_entry_ready(0);
  job.negotiator.on_entry_ready(-1);
  job.bind("w");
  job.negotiator.on_entry_ready(7);
  EXPECT_FALSE(job.negotiator.has_ready());
}

// A report that outlived its generation must not make a tensor ready that no rank has submitted.
TEST(Negotiator, AReportOfAnEntryThatIsNotCompleteIsIgnored) {
  Job job(2, 4);
  job.bind("w");
  job.negotiator.on_entry_ready(0);
  EXPECT_FALSE(job.negotiator.has_ready());
}

TEST(Negotiator, ADisagreementFailsTheTensorAndTheNextRoundWorks) {
  Job job(3, 4);
  job.request(0, "w", plain());
  job.request(1, "w", plain({5}));
  job.request(2, "w", plain());
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 1U);
  const auto error = std::get<ErrorDecision>(decisions[0]);
  EXPECT_EQ(error.name, "w");
  EXPECT_EQ(error.code, base::Code::kMismatch);
  EXPECT_EQ(error.place, "place 0");
  EXPECT_EQ(
      error.text,
      "'w': the ranks disagree: ranks 0, 2 submitted allreduce(average, f32, [4]) at place 0, "
      "rank 1 submitted allreduce(average, f32, [5]) at place 1. Make the calls agree");
  EXPECT_FALSE(job.negotiator.has_ready());
  job.bind("w");
}

TEST(Negotiator, ADisagreementWithThePlanNamesThoseWhoCountedThemselvesIn) {
  Job job(3, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w"));
  job.request(1, "w", plain({5}));
  EXPECT_FALSE(job.arrive(2, "w")) << "the generation must be closed";
  job.request(2, "w");
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 2U);
  const auto error = std::get<ErrorDecision>(decisions[0]);
  EXPECT_THAT(error.text, HasSubstr("ranks 0, 2 submitted allreduce(average, f32, [4])"));
  EXPECT_THAT(error.text, HasSubstr("rank 1 submitted allreduce(average, f32, [5]) at place 1"));
  EXPECT_EQ(std::get<EvictDecision>(decisions[1]).entry, 0);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w"));
}

TEST(Negotiator, AChangedShapeOnAllRanksIsBoundAgain) {
  Job job(2, 4);
  job.bind("w");
  job.request(0, "w", plain({7}));
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.request(1, "w", plain({7}));
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 1U);
  const auto bind = std::get<BindDecision>(decisions[0]);
  EXPECT_EQ(bind.entry, 0);
  EXPECT_EQ(bind.tensor.signature.shape, base::Shape{7});
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_TRUE(job.arrive(0, "w"));
}

TEST(Negotiator, ARankThatForgotThePlanIsHeardAllTheSame) {
  Job job(3, 4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(1, "w"));
  job.request(0, "w");
  EXPECT_FALSE(job.arrive(2, "w"));
  job.request(2, "w");
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("w"));
}

TEST(Negotiator, AllgatherKeepsTheRowsOfRanksThatCountedThemselvesIn) {
  Job job(2, 4);
  job.request(0, "g", gather(2));
  job.request(1, "g", gather(3));
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("g"));
  EXPECT_TRUE(job.arrive(1, "g"));
  job.request(0, "g", gather(9));
  (void)job.decisions();
  const auto& tensor = job.plan.at("g").tensor;
  EXPECT_THAT(tensor.first_dimensions, ElementsAre(9, 3));
  EXPECT_THAT(job.batch(), ElementsAre("g"));
}

TEST(Negotiator, OneRankThatAnnouncesTwiceIsABugThatIsReported) {
  Job job(2, 4);
  job.request(0, "w");
  job.request(0, "w");
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(std::get<ErrorDecision>(decisions[0]).code, base::Code::kInternal);
  EXPECT_EQ(std::get<ErrorDecision>(decisions[0]).rank, 0);
}

TEST(Negotiator, TheLeastRecentlyUsedEntryMakesRoom) {
  Job job(1, 2);
  job.bind("a");
  job.bind("b");
  EXPECT_TRUE(job.arrive(0, "a"));
  EXPECT_THAT(job.batch(), ElementsAre("a"));
  job.request(0, "c");
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(std::get<EvictDecision>(decisions[0]).entry, 1);
  EXPECT_EQ(std::get<BindDecision>(decisions[1]).entry, 1);
  EXPECT_TRUE(job.plan.contains("a"));
  EXPECT_FALSE(job.plan.contains("b"));
}

TEST(Negotiator, AnEntryInUseIsNotEvictedAndTheTensorTravelsByName) {
  Job job(2, 1);
  job.bind("a");
  EXPECT_TRUE(job.arrive(0, "a"));
  job.request(0, "b");
  job.request(1, "b");
  EXPECT_THAT(job.decisions(), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("b"));
  EXPECT_TRUE(job.arrive(1, "a"));
  job.request(0, "b");
  job.request(1, "b");
  EXPECT_THAT(job.decisions(), IsEmpty()) << "ready is in use, too";
  EXPECT_THAT(job.batch(), ElementsAre("a", "b"));
}

// Other ranks arrive between the reading of the count and the closing of the generation.
TEST(Negotiator, ARankThatSlipsInWhileItsEntryIsEvictedIsNotLost) {
  Job job(2, 1);
  job.bind("a");
  job.words.before_close = [&](std::int32_t) {
    job.words.before_close = {};
    EXPECT_TRUE(job.arrive(0, "a"));
  };
  job.request(0, "b");
  job.request(1, "b");
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("b"));
  ASSERT_TRUE(job.negotiator.waiting_for("a").has_value());
  EXPECT_THAT(job.negotiator.waiting_for("a")->ready, ElementsAre(0));
  job.request(1, "a");
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("a"));
}

TEST(Negotiator, AllRanksThatSlipInWhileTheirEntryIsEvictedAreNotLost) {
  Job job(2, 1);
  job.bind("a");
  job.words.before_close = [&](std::int32_t) {
    job.words.before_close = {};
    job.delay_reports = true;
    EXPECT_TRUE(job.arrive(0, "a"));
    EXPECT_TRUE(job.arrive(1, "a"));
  };
  job.request(0, "b");
  job.request(1, "b");
  (void)job.decisions();
  std::vector<std::string> executed = job.batch();
  job.deliver_reports();
  while (job.negotiator.has_ready()) {
    (void)job.decisions();
    for (const std::string& name : job.batch()) executed.push_back(name);
  }
  EXPECT_THAT(executed, testing::UnorderedElementsAre("a", "b"));
}

TEST(Negotiator, WaitingForSaysWhoIsReadyAndWhoIsMissing) {
  Job job(3, 4);
  EXPECT_FALSE(job.negotiator.waiting_for("w").has_value());
  job.request(1, "w");
  auto waiting = job.negotiator.waiting_for("w");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(waiting->ready, ElementsAre(1));
  EXPECT_THAT(waiting->missing, ElementsAre(0, 2));
  job.request(0, "w");
  job.request(2, "w");
  (void)job.decisions();
  (void)job.batch();
  EXPECT_FALSE(job.negotiator.waiting_for("w").has_value());
  EXPECT_TRUE(job.arrive(2, "w"));
  waiting = job.negotiator.waiting_for("w");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(waiting->ready, ElementsAre(2));
  EXPECT_THAT(waiting->missing, ElementsAre(0, 1));
  job.request(0, "w", plain({5}));
  waiting = job.negotiator.waiting_for("w");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(waiting->ready, ElementsAre(0, 2));
  EXPECT_THAT(waiting->missing, ElementsAre(1));
}

// The rank has finished no batch since, so it may have been stopped in the last one.
TEST(Negotiator, ARankThatWasThereForTheStepBeforeIsMissing) {
  Job job(2, 4);
  job.bind("w");
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(job.arrive(0, "w"));
    EXPECT_TRUE(job.arrive(1, "w"));
    EXPECT_THAT(job.batch(), ElementsAre("w"));
    EXPECT_FALSE(job.negotiator.waiting_for("w").has_value());
  }
  EXPECT_TRUE(job.arrive(1, "w"));
  const auto waiting = job.negotiator.waiting_for("w");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(waiting->ready, ElementsAre(1));
  EXPECT_THAT(waiting->missing, ElementsAre(0));
}

// ---- batches ----

TEST(Negotiator, BatchesFollowPrioritiesAndTheLimit) {
  Job job(1, 8);
  const auto say = [&](const std::string& name, std::int64_t floats, std::int32_t priority) {
    Signature signature = plain({floats});
    signature.priority = priority;
    job.request(0, name, signature);
  };
  say("low", 1, 0);
  say("large", 4, 1);
  say("first", 2, 2);
  say("small", 1, 1);
  (void)job.decisions();
  EXPECT_THAT(job.batch(base::Bytes(16)), ElementsAre("first", "small", "low"));
  EXPECT_THAT(job.batch(base::Bytes(1)), ElementsAre("large")) << "above the limit, so alone";
}

TEST(Negotiator, OnlyWhatOnePassCanServeIsFused) {
  const Signature base = plain();
  std::vector<Signature> different(9, base);
  different[1].dtype = base::DType::kF64;
  different[2].op = base::ReduceOp::kMax;
  different[3].prescale = 0.5;
  different[4].postscale = 0.5;
  different[5].device = 0;
  different[6].operation = Operation::kBroadcast;
  different[7] = different[6];
  different[7].root = 1;
  different[8].compression = base::Compression::kBf16;
  Job job(2, 32);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < different.size(); ++i) {
      const std::string name = std::to_string(i) + (round == 0 ? "a" : "b");
      for (std::int32_t rank = 0; rank < 2; ++rank) job.request(rank, name, different[i]);
    }
  }
  (void)job.decisions();
  for (std::size_t i = 0; i < different.size(); ++i) {
    EXPECT_THAT(job.batch(), ElementsAre(std::to_string(i) + "a", std::to_string(i) + "b"));
  }
  EXPECT_FALSE(job.negotiator.has_ready());
}

TEST(Negotiator, AGroupFusesAsAWholeOrNotAtAll) {
  Job job(1, 8);
  Signature group = plain({6});
  group.members = {{"a", {2}}, {"b", {4}}};
  job.request(0, "single", plain({2}));
  job.request(0, "group of a", group);
  job.request(0, "later", plain({1}));
  (void)job.decisions();
  EXPECT_THAT(job.batch(base::Bytes(24)), ElementsAre("single", "later")) << "no room for all";
  EXPECT_THAT(job.batch(base::Bytes(24)), ElementsAre("group of a"));
  job.request(0, "x", plain({2}));
  job.request(0, "group of y", group);
  (void)job.decisions();
  EXPECT_THAT(job.batch(base::Bytes(32)), ElementsAre("x", "group of y"));
}

TEST(Negotiator, AGroupThatChangesLeavesThePlan) {
  Job job(2, 8);
  Signature group = plain({6});
  group.members = {{"a", {2}}, {"b", {4}}};
  job.bind("group of a", group);
  ASSERT_TRUE(job.arrive(0, "group of a"));
  Signature changed = group;
  changed.members[1].name = "c";
  job.request(1, "group of a", changed);
  const auto decisions = job.decisions();
  ASSERT_FALSE(decisions.empty());
  const auto* error = std::get_if<ErrorDecision>(&decisions.front());
  ASSERT_NE(error, nullptr);
  EXPECT_THAT(error->text, HasSubstr("tensor 2 of the group: rank 0 submitted 'b' [4] at"));
}

// Its rows travel with the data, so that a step in which they change is as cheap as any other.
TEST(Negotiator, AnAllToAllStaysPlannedWhenItsRowsChange) {
  Job job(2, 8);
  Signature exchange = plain({5, 2});
  exchange.operation = Operation::kAllToAll;
  job.request(0, "x", exchange);
  exchange.shape[0] = 9;
  job.request(1, "x", exchange);
  (void)job.decisions();
  ASSERT_TRUE(job.plan.contains("x"));
  EXPECT_TRUE(job.plan["x"].tensor.first_dimensions.empty());
  EXPECT_EQ(job.plan["x"].tensor.signature.shape, (base::Shape{0, 2}));
  EXPECT_THAT(job.batch(), ElementsAre("x"));
  EXPECT_TRUE(job.arrive(0, "x"));
  EXPECT_TRUE(job.arrive(1, "x"));
  EXPECT_THAT(job.batch(), ElementsAre("x"));
  EXPECT_TRUE(job.decisions().empty());
}

TEST(Negotiator, ScattersAndExchangesGoAlone) {
  Job job(1, 8);
  for (const Operation operation : {Operation::kReduceScatter, Operation::kAllToAll}) {
    for (const char* name : {"1", "2"}) {
      Signature signature = plain();
      signature.operation = operation;
      job.request(0, std::string(name_of(operation)) + name, signature);
    }
  }
  (void)job.decisions();
  for (const char* name : {"reduce_scatter1", "reduce_scatter2", "all_to_all1", "all_to_all2"}) {
    EXPECT_THAT(job.batch(), ElementsAre(name));
  }
}

TEST(Negotiator, GathersAndBarriersGoAlone) {
  Job job(1, 8);
  Signature barrier;
  barrier.operation = Operation::kBarrier;
  job.request(0, "g1", gather(1));
  job.request(0, "g2", gather(1));
  job.request(0, "b1", barrier);
  job.request(0, "b2", barrier);
  (void)job.decisions();
  for (const char* name : {"g1", "g2", "b1", "b2"}) EXPECT_THAT(job.batch(), ElementsAre(name));
}

}  // namespace
}  // namespace ronde::runtime
