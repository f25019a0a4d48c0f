// SPDX-License-Identifier: Apache-2.0
// The negotiator with hosts whose arrival words are out of reach: their subtrees report what all of
// their ranks have in common, and answer who had arrived at an entry that was closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/negotiate/negotiator.h"
#include "test/unit/runtime/negotiate/negotiator_fixture.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two ranks are within reach (0 and 1); two subtrees of one rank each (2 and 3) report.
constexpr std::int32_t kRanks = 4;
constexpr std::int32_t kHere = 2;
constexpr std::int32_t kSubtrees = 2;

struct Hosts {
  explicit Hosts(std::int64_t capacity)
      : words(kHere), negotiator(kRanks, {kHere, kSubtrees}, capacity, words) {}

  void request(std::int32_t rank, const std::string& name, const Signature& signature = plain()) {
    negotiator.on_request(rank, {name, "place " + std::to_string(rank), signature});
  }
  bool arrive(std::int32_t rank, const std::string& name, StepNumber step = {}) {
    const auto arrival = words.arrive(rank, entry(name), plan.at(name).generation, step);
    if (arrival == FakeArrivalWords::Arrival::kLast) negotiator.on_entry_ready(entry(name));
    return arrival != FakeArrivalWords::Arrival::kStale;
  }
  void subtree_ready(const std::string& name, const StepSpan& steps = {}) {
    negotiator.on_subtree_ready({entry(name), plan.at(name).generation, steps});
  }
  void answer(const CloseDecision& close, std::vector<std::int64_t> ranks = {},
              std::vector<std::int64_t> steps = {}) {
    negotiator.on_closed({close.entry, close.generation,
                          base::narrow<std::uint32_t>(std::ssize(ranks)), ranks, steps});
  }
  [[nodiscard]] std::int32_t entry(const std::string& name) const { return plan.at(name).entry; }

  // Returns "bind w", "close 0", ... in order; follows the plan, and keeps the CloseDecisions that
  // are to be answered.
  std::vector<std::string> decisions() {
    std::vector<std::string> said;
    for (const Decision& decision : negotiator.take_decisions()) {
      if (const auto* bind = std::get_if<BindDecision>(&decision)) {
        plan[bind->name] = *bind;
        said.push_back("bind " + bind->name);
      } else if (const auto* evict = std::get_if<EvictDecision>(&decision)) {
        std::erase_if(plan, [&](const auto& row) { return row.second.entry == evict->entry; });
        said.push_back("evict " + std::to_string(evict->entry));
      } else if (const auto* close = std::get_if<CloseDecision>(&decision)) {
        closes.push_back(*close);
        said.push_back("close " + std::to_string(close->entry));
      } else if (const auto* error = std::get_if<ErrorDecision>(&decision)) {
        texts.push_back(error->text);
        said.push_back("error " + error->name);
      } else if (const auto* left = std::get_if<DepartedDecision>(&decision)) {
        said.push_back("departed " + std::to_string(left->rank));
      }
    }
    return said;
  }
  std::vector<std::string> batch() {
    std::vector<std::string> names;
    const auto decided = negotiator.next_batch(kPlenty);
    if (!decided) return names;
    words.all_hear(*decided);
    for (const BatchItem& item : decided->items) {
      std::string name = item.name.empty() ? "" : "by name " + item.name;
      for (const auto& [known, bind] : plan) {
        if (item.entry >= 0 && bind.entry == item.entry) name = known;
      }
      names.push_back(name);
    }
    return names;
  }
  // Takes a tensor through its first step, so that it is in the plan.
  void bind(const std::string& name, const Signature& signature = plain()) {
    for (std::int32_t rank = 0; rank < kRanks; ++rank) request(rank, name, signature);
    EXPECT_THAT(decisions(), ElementsAre("bind " + name));
    EXPECT_THAT(batch(), ElementsAre(name));
  }

  FakeArrivalWords words;
  Negotiator negotiator;
  std::map<std::string, BindDecision> plan;
  std::vector<CloseDecision> closes;
  std::vector<std::string> texts;  // the errors' texts
};

TEST(NegotiatorHosts, ReadyOnlyWhenEveryReporterHasReported) {
  Hosts job(4);
  job.bind("w");
  // Step after step, with another one last each time.
  for (int last = 0; last < 3; ++last) {
    for (int i = 1; i <= 3; ++i) {
      EXPECT_FALSE(job.negotiator.has_ready()) << "step " << last << ", report " << i;
      if ((last + i) % 3 == 0) {
        EXPECT_TRUE(job.arrive(0, "w"));
        EXPECT_FALSE(job.negotiator.has_ready()) << "one of two ranks";
        EXPECT_TRUE(job.arrive(1, "w"));
      } else {
        job.subtree_ready("w");
      }
    }
    EXPECT_THAT(job.batch(), ElementsAre("w"));
    EXPECT_THAT(job.decisions(), IsEmpty()) << "only bits move";
  }
}

constexpr StepNumber kSeven = StepNumber::agreed(7);
constexpr StepNumber kEight = StepNumber::agreed(8);
StepSpan steps_of(std::int32_t rank, StepNumber step) { return {{step, rank}, {step, rank}}; }
std::int64_t word_of(StepNumber step) { return static_cast<std::int64_t>(step.word()); }

// The first subtree is in another step than the rest.
TEST(NegotiatorHosts, StepsThatDifferFailTheTensorOnceAllHaveAnswered) {
  Hosts job(4);
  job.bind("w");
  for (const std::int32_t rank : {0, 1}) EXPECT_TRUE(job.arrive(rank, "w", kSeven));
  job.subtree_ready("w", steps_of(2, kEight));
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.subtree_ready("w", steps_of(3, kSeven));
  EXPECT_THAT(job.decisions(), ElementsAre("close 0"));
  EXPECT_FALSE(job.negotiator.has_ready());
  const std::vector<CloseDecision> closes = std::exchange(job.closes, {});
  job.answer(closes.front(), {2}, {word_of(kEight)});
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.answer(closes.front(), {3}, {word_of(kSeven)});
  EXPECT_THAT(job.decisions(), ElementsAre("error w", "evict 0"));
  EXPECT_THAT(job.texts,
              ElementsAre(HasSubstr("is in step 7, rank 2 is in step 8: rank 2 has left")));
}

TEST(NegotiatorHosts, EqualStepsOfAllSubtreesAreOneBatch) {
  Hosts job(4);
  job.bind("w");
  for (const std::int32_t rank : {2, 3}) job.subtree_ready("w", steps_of(rank, kSeven));
  for (const std::int32_t rank : {0, 1}) EXPECT_TRUE(job.arrive(rank, "w", kSeven));
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_THAT(job.decisions(), IsEmpty());
}

TEST(NegotiatorHosts, ReportsOfAnotherGenerationDoNotCount) {
  Hosts job(4);
  job.bind("w");
  const BindDecision bound = job.plan.at("w");
  job.negotiator.on_subtree_ready({bound.entry, bound.generation - 1});
  job.negotiator.on_subtree_ready({bound.entry, bound.generation + 1});
  job.negotiator.on_subtree_ready({bound.entry + 1, bound.generation});
  job.negotiator.on_subtree_ready({-1, bound.generation});
  EXPECT_TRUE(job.arrive(0, "w"));
  EXPECT_TRUE(job.arrive(1, "w"));
  EXPECT_FALSE(job.negotiator.has_ready());
  job.subtree_ready("w");
  job.subtree_ready("w");
  EXPECT_TRUE(job.negotiator.has_ready());
}

// Rank 0 sends another signature: no rank may count itself in any more, on this host or another.
// A slow rank may report a generation that was closed since, when the next one is complete.
TEST(NegotiatorHosts, TheRanksAtHandReportOnceAStep) {
  Hosts job(4);
  job.bind("w");
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(job.arrive(0, "w"));
    EXPECT_TRUE(job.arrive(1, "w"));
    job.negotiator.on_entry_ready(job.entry("w"));
    job.subtree_ready("w");
    EXPECT_FALSE(job.negotiator.has_ready());
    job.subtree_ready("w");
    EXPECT_THAT(job.batch(), ElementsAre("w"));
  }
}

TEST(NegotiatorHosts, AFullRequestAsksWhoHadArrivedElsewhere) {
  Hosts job(4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(1, "w"));
  job.subtree_ready("w");
  job.request(0, "w");
  EXPECT_THAT(job.decisions(), ElementsAre("close 0"));
  EXPECT_GT(job.closes.back().generation, job.plan.at("w").generation);
  job.subtree_ready("w");  // for the closed generation, whose arrivals the answer counts too
  job.answer(job.closes.back(), {2});
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.answer(job.closes.back(), {3});
  EXPECT_THAT(job.decisions(), ElementsAre("bind w"));
  EXPECT_EQ(job.plan.at("w").generation, job.closes.back().generation);
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  // The next step counts from 0.
  EXPECT_TRUE(job.arrive(0, "w"));
  EXPECT_TRUE(job.arrive(1, "w"));
  job.subtree_ready("w");
  EXPECT_FALSE(job.negotiator.has_ready());
  job.subtree_ready("w");
  EXPECT_TRUE(job.negotiator.has_ready());
}

TEST(NegotiatorHosts, WhoHadNotArrivedSendsAFullRequestWhichIsAwaited) {
  Hosts job(4);
  job.bind("w");
  job.request(0, "w");
  (void)job.decisions();
  job.answer(job.closes.back(), {2});
  job.answer(job.closes.back());
  EXPECT_FALSE(job.arrive(1, "w")) << "the generation is closed";
  job.request(1, "w");
  EXPECT_FALSE(job.negotiator.has_ready()) << "rank 3 is missing";
  job.request(3, "w");
  EXPECT_THAT(job.decisions(), ElementsAre("bind w"));
  EXPECT_THAT(job.batch(), ElementsAre("w"));
}

TEST(NegotiatorHosts, WhatAnonymousRanksAgreedToIsCompared) {
  Hosts job(4);
  job.bind("w");
  job.request(0, "w", plain({5}));
  (void)job.decisions();
  job.answer(job.closes.back(), {2});
  job.answer(job.closes.back(), {3});
  job.request(1, "w", plain({5}));
  EXPECT_THAT(job.decisions(), ElementsAre("error w", "evict 0"));
}

TEST(NegotiatorHosts, ALateAnswerAfterEverybodyHasSaidItInFullIsNothing) {
  Hosts job(4);
  job.bind("w");
  job.request(0, "w");
  (void)job.decisions();
  for (const std::int32_t rank : {1, 2, 3}) job.request(rank, "w");
  EXPECT_THAT(job.decisions(), ElementsAre("bind w"));
  const CloseDecision first = job.closes.back();
  job.answer(first);
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  job.answer(first);
  EXPECT_THAT(job.decisions(), IsEmpty());
  // An answer to an earlier CloseDecision does not count for a later one either.
  job.request(0, "w");
  EXPECT_THAT(job.decisions(), ElementsAre("close 0"));
  job.answer(first, {2});
  job.answer(first, {3});
  job.request(1, "w");
  EXPECT_FALSE(job.negotiator.has_ready());
  job.answer(job.closes.back(), {2});
  job.answer(job.closes.back(), {3});
  EXPECT_TRUE(job.negotiator.has_ready());
}

TEST(NegotiatorHosts, AnEntryIsEvictedWhenAllHaveAnsweredAndTheTensorGoesByItsNameMeanwhile) {
  Hosts job(1);
  job.bind("old");
  for (std::int32_t rank = 0; rank < kRanks; ++rank) job.request(rank, "new");
  EXPECT_THAT(job.decisions(), ElementsAre("close 0")) << "nobody forgets the old one yet";
  EXPECT_THAT(job.batch(), ElementsAre("by name new"));
  job.answer(job.closes.back());
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.answer(job.closes.back());
  EXPECT_THAT(job.decisions(), ElementsAre("evict 0"));
  for (std::int32_t rank = 0; rank < kRanks; ++rank) job.request(rank, "new");
  EXPECT_THAT(job.decisions(), ElementsAre("bind new"));
  EXPECT_GT(job.plan.at("new").generation, job.closes.back().generation)
      << "nobody holds the generation";
}

TEST(NegotiatorHosts, ARankElsewhereThatHadArrivedKeepsItsEntry) {
  Hosts job(1);
  job.bind("old");
  for (std::int32_t rank = 0; rank < kRanks; ++rank) job.request(rank, "new");
  EXPECT_THAT(job.decisions(), ElementsAre("close 0"));
  job.answer(job.closes.back(), {2});
  job.answer(job.closes.back());
  EXPECT_THAT(job.decisions(), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("by name new"));
  for (const std::int32_t rank : {0, 1, 3}) job.request(rank, "old");
  EXPECT_THAT(job.decisions(), ElementsAre("bind old"));
  EXPECT_THAT(job.batch(), ElementsAre("old"));
}

TEST(NegotiatorHosts, AnEntryThatASubtreeHasReportedIsNotEvicted) {
  Hosts job(1);
  job.bind("old");
  job.subtree_ready("old");
  for (std::int32_t rank = 0; rank < kRanks; ++rank) job.request(rank, "new");
  EXPECT_THAT(job.decisions(), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("by name new"));
}

TEST(NegotiatorHosts, AClosingRankWaitsForAnswersBeforeAnybodyIsCalledLate) {
  Hosts job(4);
  job.bind("with");
  job.bind("without");
  job.subtree_ready("with");
  EXPECT_TRUE(job.arrive(0, "without"));
  job.negotiator.on_closing(3, {false});
  EXPECT_THAT(job.decisions(), ElementsAre("close 0", "close 1"));
  const std::vector<CloseDecision> asked = job.closes;
  job.answer(asked[1], {2});
  EXPECT_THAT(job.decisions(), IsEmpty()) << "rank 3 may have arrived at either";
  job.answer(asked[1]);
  EXPECT_THAT(job.decisions(), ElementsAre("error without", "evict 1"));
  EXPECT_THAT(job.texts.back(), HasSubstr("rank 3 closed its engine without submitting it"));
  job.answer(asked[0]);
  job.answer(asked[0], {3});
  EXPECT_THAT(job.decisions(), IsEmpty()) << "rank 3 waits for it";
  for (const std::int32_t rank : {0, 1, 2}) job.request(rank, "with");
  EXPECT_THAT(job.decisions(), ElementsAre("evict 0"));
  EXPECT_THAT(job.batch(), ElementsAre("by name with"));
  EXPECT_THAT(job.decisions(), ElementsAre("departed 3"));
}

TEST(NegotiatorHosts, NobodyDepartsBeforeTheAnswersHaveCome) {
  Hosts job(4);
  job.bind("w");
  job.negotiator.on_closing(0, {false});
  EXPECT_THAT(job.decisions(), ElementsAre("close 0"));
  job.answer(job.closes.back());
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.answer(job.closes.back());
  EXPECT_THAT(job.decisions(), ElementsAre("evict 0", "departed 0"));
}

TEST(NegotiatorHosts, WhatIsReadyWhenARankClosesGoesByNameAndTakesNoMoreArrivals) {
  Hosts job(4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(0, "w"));
  EXPECT_TRUE(job.arrive(1, "w"));
  job.subtree_ready("w");
  job.subtree_ready("w");
  const std::uint32_t generation = job.plan.at("w").generation;
  job.negotiator.on_closing(1, {false});
  EXPECT_THAT(job.decisions(), ElementsAre("close 0", "evict 0"));
  EXPECT_GT(job.closes.back().generation, generation);
  job.answer(job.closes.back(), {2});
  job.answer(job.closes.back(), {3});
  EXPECT_THAT(job.decisions(), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("by name w"));
  EXPECT_THAT(job.decisions(), ElementsAre("departed 1"));
}

TEST(NegotiatorHosts, AStallIsReportedWhenTheHostsHaveSaidWhoWaits) {
  Hosts job(4);
  job.bind("w");
  EXPECT_TRUE(job.arrive(1, "w"));
  EXPECT_FALSE(job.negotiator.find_out("w"));
  EXPECT_THAT(job.decisions(), ElementsAre("close 0"));
  EXPECT_FALSE(job.negotiator.find_out("w")) << "asked once is enough";
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.answer(job.closes.back(), {2});
  EXPECT_FALSE(job.negotiator.find_out("w"));
  job.answer(job.closes.back());
  EXPECT_TRUE(job.negotiator.find_out("w"));
  const auto waiting = job.negotiator.waiting_for("w");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_THAT(waiting->ready, ElementsAre(1, 2));
  EXPECT_THAT(waiting->missing, ElementsAre(0, 3));
  // The tensor completes nevertheless.
  job.request(0, "w");
  job.request(3, "w");
  EXPECT_THAT(job.decisions(), ElementsAre("bind w"));
  EXPECT_THAT(job.batch(), ElementsAre("w"));
}

TEST(NegotiatorHosts, NobodyIsAskedAboutWhatIsReadyOrUnknown) {
  Hosts job(4);
  job.bind("w");
  EXPECT_TRUE(job.negotiator.find_out("unknown"));
  EXPECT_TRUE(job.arrive(0, "w"));
  EXPECT_TRUE(job.arrive(1, "w"));
  job.subtree_ready("w");
  job.subtree_ready("w");
  EXPECT_TRUE(job.negotiator.find_out("w"));
  EXPECT_FALSE(job.negotiator.waiting_for("w").has_value());
  EXPECT_THAT(job.decisions(), IsEmpty());
}

TEST(NegotiatorHosts, WhatNobodyWaitsForIsForgottenWithTheLastAnswer) {
  Hosts job(4);
  job.bind("w");
  EXPECT_FALSE(job.negotiator.find_out("w"));
  (void)job.decisions();
  job.answer(job.closes.back());
  job.answer(job.closes.back());
  EXPECT_THAT(job.decisions(), ElementsAre("evict 0"));
  EXPECT_TRUE(job.negotiator.find_out("w"));
  EXPECT_FALSE(job.negotiator.waiting_for("w").has_value());
}

}  // namespace
}  // namespace ronde::runtime
