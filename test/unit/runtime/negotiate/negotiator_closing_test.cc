// SPDX-License-Identifier: Apache-2.0
// Ranks that close their engines: what can still complete completes, what cannot fails at once, and
// every closing rank departs exactly once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/negotiate/negotiator.h"
#include "test/unit/runtime/negotiate/negotiator_fixture.h"

namespace ronde::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// "error w", "departed 1", "evict 0": the decisions as short texts, in order.
std::vector<std::string> gist(const std::vector<Decision>& decisions) {
  std::vector<std::string> words;
  for (const Decision& decision : decisions) {
    if (const auto* error = std::get_if<ErrorDecision>(&decision)) {
      EXPECT_EQ(error->code, base::Code::kClosed) << error->text;
      words.push_back("error " + error->name);
    } else if (const auto* left = std::get_if<DepartedDecision>(&decision)) {
      words.push_back("departed " + std::to_string(left->rank));
    } else if (std::holds_alternative<BindDecision>(decision)) {
      words.emplace_back("bind");
    }
  }
  return words;
}

TEST(NegotiatorClosing, AnIdleRankDepartsAtOnce) {
  Job job(2, 4);
  job.negotiator.on_closing(1, {false});
  EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 1"));
  job.negotiator.on_closing(1, {true});
  EXPECT_THAT(job.decisions(), IsEmpty()) << "once is enough";
}

TEST(NegotiatorClosing, WhatLacksTheClosingRankFailsAndSaysWhy) {
  Job job(3, 4);
  job.request(0, "w");
  job.negotiator.on_closing(2, {false});
  const auto decisions = job.decisions();
  EXPECT_THAT(gist(decisions), ElementsAre("error w", "departed 2"));
  const auto error = std::get<ErrorDecision>(decisions[0]);
  EXPECT_EQ(error.text,
            "'w' cannot complete: rank 2 closed its engine without submitting it (did it throw? "
            "look at its output)")
      << "the text that the others get where rank 2 threw";
  EXPECT_EQ(error.rank, 2);
  job.request(1, "late");
  EXPECT_THAT(gist(job.decisions()), ElementsAre("error late"));
}

TEST(NegotiatorClosing, WhatIncludesTheClosingRankIsWaitedFor) {
  Job job(2, 4);
  job.request(1, "w");
  job.negotiator.on_closing(1, {false});
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.request(0, "w");
  EXPECT_THAT(gist(job.decisions()), IsEmpty()) << "not before its batch, and no new plan";
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 1"));
}

TEST(NegotiatorClosing, ForcedClosingWaitsForNothing) {
  Job job(2, 4);
  job.request(1, "w");
  job.negotiator.on_closing(1, {true});
  const auto decisions = job.decisions();
  EXPECT_THAT(gist(decisions), ElementsAre("error w", "departed 1"));
  EXPECT_THAT(std::get<ErrorDecision>(decisions[0]).text,
              HasSubstr("rank 1 closed its engine before every rank had submitted it"));
}

TEST(NegotiatorClosing, PatienceMayEnd) {
  Job job(2, 4);
  job.request(1, "w");
  job.negotiator.on_closing(1, {false});
  EXPECT_THAT(job.decisions(), IsEmpty());
  job.negotiator.on_closing(1, {true});
  EXPECT_THAT(gist(job.decisions()), ElementsAre("error w", "departed 1"));
}

TEST(NegotiatorClosing, ForcedClosingStillExecutesWhatIsReady) {
  Job job(2, 4);
  job.request(0, "w");
  job.request(1, "w");
  job.negotiator.on_closing(0, {true});
  EXPECT_THAT(gist(job.decisions()), testing::Not(testing::Contains("departed 0")));
  EXPECT_THAT(job.batch(), ElementsAre("w"));
  EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 0"));
}

TEST(NegotiatorClosing, EverybodyClosesAtOnce) {
  for (std::int32_t first = 0; first < 3; ++first) {
    Job job(3, 4);
    for (std::int32_t i = 0; i < 3; ++i) job.negotiator.on_closing((first + i) % 3, {false});
    auto words = gist(job.decisions());
    std::sort(words.begin(), words.end());
    EXPECT_THAT(words, ElementsAre("departed 0", "departed 1", "departed 2"));
  }
}

// The tensor fails when the last of the two closes; both must depart.
TEST(NegotiatorClosing, TheOneWhoWaitedIsLetGoWhenAnotherClosesWithoutTheTensor) {
  for (const std::int32_t waiting : {0, 1}) {
    Job job(2, 4);
    job.request(waiting, "w");
    job.negotiator.on_closing(waiting, {false});
    job.negotiator.on_closing(1 - waiting, {false});
    auto words = gist(job.decisions());
    std::sort(words.begin(), words.end());
    EXPECT_THAT(words, ElementsAre("departed 0", "departed 1", "error w")) << "rank " << waiting;
  }
}

TEST(NegotiatorClosing, CountedArrivalsBecomeRequests) {
  Job job(2, 4);
  job.bind("with");
  job.bind("without");
  EXPECT_TRUE(job.arrive(0, "with"));
  EXPECT_TRUE(job.arrive(1, "without"));
  job.negotiator.on_closing(0, {false});
  EXPECT_THAT(gist(job.decisions()), ElementsAre("error without"));
  EXPECT_FALSE(job.arrive(1, "with")) << "the coordinator must hear of it by name";
  job.request(1, "with");
  EXPECT_THAT(gist(job.decisions()), IsEmpty());
  EXPECT_THAT(job.batch(), ElementsAre("with"));
  EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 0"));
}

// The closing arrives before the report of an entry that is already complete.
TEST(NegotiatorClosing, ACompleteEntryIsExecutedBeforeTheRankDeparts) {
  for (const bool lacking_first : {true, false}) {
    Job job(2, 4);
    job.bind(lacking_first ? "lacking" : "complete");
    job.bind(lacking_first ? "complete" : "lacking");
    job.delay_reports = true;
    EXPECT_TRUE(job.arrive(0, "complete"));
    EXPECT_TRUE(job.arrive(1, "complete"));
    EXPECT_TRUE(job.arrive(1, "lacking"));
    job.negotiator.on_closing(0, {false});
    EXPECT_THAT(gist(job.decisions()), ElementsAre("error lacking"))
        << "rank 0 departs before the batch that includes it";
    EXPECT_THAT(job.batch(), ElementsAre("complete"));
    EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 0"));
    job.deliver_reports();
    EXPECT_FALSE(job.negotiator.has_ready());
  }
}

TEST(NegotiatorClosing, ARankIsWaitedForThoughAnotherTensorLacksIt) {
  Job job(2, 4);
  job.bind("lacking");
  job.bind("with");
  EXPECT_TRUE(job.arrive(1, "lacking"));
  EXPECT_TRUE(job.arrive(0, "with"));
  job.negotiator.on_closing(0, {false});
  EXPECT_THAT(gist(job.decisions()), ElementsAre("error lacking"));
  job.request(1, "with");
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("with"));
  EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 0"));
}

// An entry that is ready while a rank closes must not take arrivals for a step that never comes:
// rank 1 may wait for it before it submits what rank 0 waits for.
TEST(NegotiatorClosing, NobodyCountsHimselfInAfterTheBatchOfAClosingRank) {
  for (const bool planned : {false, true}) {
    Job job(2, 4);
    if (planned) {
      job.bind("w");
      EXPECT_TRUE(job.arrive(0, "w"));
      EXPECT_TRUE(job.arrive(1, "w"));
    } else {
      job.request(0, "w");
      job.request(1, "w");
      (void)job.decisions();
    }
    job.request(0, "z");
    job.negotiator.on_closing(0, {false});
    (void)job.decisions();
    EXPECT_THAT(job.batch(), ElementsAre("w"));
    (void)job.decisions();
    EXPECT_FALSE(job.arrive(1, "w")) << "nobody would ever tell rank 1";
    job.request(1, "w");
    EXPECT_THAT(gist(job.decisions()), ElementsAre("error w"));
    job.request(1, "z");
    (void)job.decisions();
    EXPECT_THAT(job.batch(), ElementsAre("z"));
    EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 0"));
  }
}

TEST(NegotiatorClosing, ARankThatSlippedInOnAnEvictionIsWaitedFor) {
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
  job.negotiator.on_closing(0, {false});
  EXPECT_THAT(gist(job.decisions()), IsEmpty());
  job.request(1, "a");
  (void)job.decisions();
  EXPECT_THAT(job.batch(), ElementsAre("a"));
  EXPECT_THAT(gist(job.decisions()), ElementsAre("departed 0"));
}

TEST(NegotiatorClosing, DisagreementsAreStillErrors) {
  Job job(2, 4);
  job.request(0, "w");
  job.negotiator.on_closing(0, {false});
  job.request(1, "w", plain({5}));
  const auto decisions = job.decisions();
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(std::get<ErrorDecision>(decisions[0]).code, base::Code::kMismatch);
  EXPECT_EQ(std::get<DepartedDecision>(decisions[1]).rank, 0);
}

// It may still wait for messages after it has departed, of which the other hosts hear.
TEST(NegotiatorClosing, ARankThatWaitsForNothingMoreHasLeft) {
  FakeArrivalWords words(1);
  Negotiator negotiator(2, {1, 1}, 4, words);
  const auto lefts = [&negotiator] {
    std::vector<bool> all;
    for (const Decision& decision : negotiator.take_decisions()) {
      all.push_back(std::get<DepartedDecision>(decision).left);
    }
    return all;
  };
  negotiator.on_closing(1, {});
  EXPECT_EQ(lefts(), (std::vector<bool>{false}));
  negotiator.on_closing(1, {.forced = true});
  EXPECT_EQ(lefts(), (std::vector<bool>{true}));
  negotiator.on_closing(0, {.forced = true});
  EXPECT_EQ(lefts(), (std::vector<bool>{false, true}));
}

}  // namespace
}  // namespace ronde::runtime
