// SPDX-License-Identifier: Apache-2.0
// Every interleaving of the role protocol in small worlds, delayed stores included, and proof that
// the search notices when a rule of the protocol is broken.
#include "runtime/drive/agent_role.h"

#include <chrono>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/role_model.h"

namespace ronde::test {
namespace {

constexpr std::uint64_t kLimit = 20'000'000;  // states

class EveryInterleaving : public testing::TestWithParam<RoleScenario> {};

TEST_P(EveryInterleaving, NobodySleepsForEver) {
  const auto start = std::chrono::steady_clock::now();
  const Interleaving::Report report = explore_role(GetParam(), Mutant::kNone, kLimit);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << GetParam().name << ": " << report.states << " states, " << report.transitions
            << " transitions, " << report.quiet << " quiet, " << seconds.count() << " s\n";
  EXPECT_TRUE(report.failure.empty()) << report.failure;
  EXPECT_TRUE(report.complete);
  EXPECT_GT(report.quiet, 0U);
}

RoleScenario world(std::string name, std::vector<Source> works,
                   std::vector<RoleScenario::Waiter> waiters) {
  RoleScenario result;
  result.name = std::move(name);
  result.works = std::move(works);
  result.waiters = std::move(waiters);
  // A world of two waiters is visited without the choice of watching on: see RoleScenario.
  result.watches = result.waiters.size() < 2;
  result.moves = result.waiters.size() < 2 ? 2 : 1;
  result.one_poster = result.waiters.size() == 2;
  return result;
}

RoleScenario stops_early(RoleScenario scenario) {
  scenario.one_at_a_time = true;
  return scenario;
}

RoleScenario sleeps_at_once(RoleScenario scenario) {
  scenario.watches = false;
  return scenario;
}

RoleScenario watching(RoleScenario scenario) {
  scenario.watches = true;
  return scenario;
}

RoleScenario two_posters(RoleScenario scenario) {
  scenario.one_poster = false;
  return scenario;
}

RoleScenario listening(RoleScenario scenario) {
  scenario.name += "Listening";
  scenario.always_listens = true;
  return scenario;
}

RoleScenario no_waiter() { return world("NoWaiter", {Source::kRing, Source::kRing}, {}); }
RoleScenario one_ring() { return world("OneRing", {Source::kRing}, {{0, false}}); }
RoleScenario one_polled() { return world("OnePolled", {Source::kSilent}, {{0, false}}); }
RoleScenario one_event() { return world("OneEvent", {Source::kEvent}, {{0, false}}); }
RoleScenario one_message() { return world("OneMessage", {Source::kMessage}, {{0, false}}); }
RoleScenario message_dropped() { return world("MessageDropped", {Source::kMessage}, {{0, true}}); }
RoleScenario one_counter() { return world("OneCounter", {Source::kCounter}, {{0, false}}); }
RoleScenario counter_dropped() { return world("CounterDropped", {Source::kCounter}, {{0, true}}); }
RoleScenario two_at_once() {
  return stops_early(world("OnePostOneRing", {Source::kPost, Source::kRing}, {{0, false}}));
}
RoleScenario one_expires() {
  return world("OneExpires", {Source::kRing, Source::kNever}, {{0, false}, {1, true}});
}

// A thread that probably waits, and does: no timer is needed.
RoleScenario defers_and_waits(std::string name, std::vector<Source> works) {
  std::vector<RoleScenario::Waiter> waiters;
  for (int work = 0; work < static_cast<int>(works.size()); ++work) {
    waiters.push_back({work, false});
  }
  RoleScenario result = world(std::move(name), std::move(works), std::move(waiters));
  result.waiters_defer = true;
  result.timer_helps = false;
  return result;
}
// A thread that submits and never waits, beside waiters of works that peers ring for.
RoleScenario submits(std::string name, std::vector<Source> works,
                     std::vector<RoleScenario::Submission> submissions,
                     std::vector<RoleScenario::Waiter> waiters = {}) {
  RoleScenario result = world(std::move(name), std::move(works), std::move(waiters));
  result.submissions = std::move(submissions);
  result.watches = false;
  return result;
}
RoleScenario without_timer(RoleScenario scenario) {
  scenario.timer_helps = false;
  return scenario;
}
RoleScenario one_deferred() { return submits("OneDeferred", {Source::kPost}, {{0, true}}); }
RoleScenario deferred_and_rung() {
  return submits("DeferredAndRung", {Source::kRing}, {{0, true}});
}
RoleScenario deferred_then_plain() {
  return without_timer(
      submits("DeferredThenPlain", {Source::kPost, Source::kPost}, {{0, true}, {1, false}}));
}
RoleScenario deferred_then_rung() {
  return without_timer(
      submits("DeferredThenRung", {Source::kPost, Source::kRing}, {{0, true}, {1, false}}));
}
RoleScenario one_helps() {
  return without_timer(submits("OneHelps", {Source::kPost}, {{0, false, true}}));
}
RoleScenario helps_beside_waiter() {
  return without_timer(submits("HelpsBesideWaiter", {Source::kPost, Source::kRing},
                               {{0, false, true}}, {{1, false}}));
}
RoleScenario deferred_beside_waiter() {
  return submits("DeferredBesideWaiter", {Source::kRing}, {{0, true}}, {{0, false}});
}

std::string name_of(const testing::TestParamInfo<RoleScenario>& each) { return each.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Worlds, EveryInterleaving,
    testing::Values(no_waiter(), one_ring(), one_polled(), one_expires(), one_event(),
                    one_counter(), sleeps_at_once(counter_dropped()), one_message(),
                    sleeps_at_once(message_dropped()), listening(one_counter()),
                    sleeps_at_once(listening(counter_dropped())),
                    world("OneRingDeadline", {Source::kRing}, {{0, true}}),
                    world("OnePost", {Source::kPost}, {{0, false}}),
                    world("PolledDropped", {Source::kSilent}, {{0, true}}), two_at_once(),
                    sleeps_at_once(stops_early(world("TwoPosters", {Source::kRing, Source::kRing},
                                                     {{0, false}}))),
                    defers_and_waits("DefersAndWaits", {Source::kPost}),
                    sleeps_at_once(defers_and_waits("DefersAndWaitsForARing", {Source::kRing})),
                    one_deferred(), deferred_and_rung(), deferred_then_plain(), one_helps(),
                    deferred_then_rung(),
                    world("TwoPosts", {Source::kPost, Source::kPost}, {{0, false}, {1, false}}),
                    world("TwoOfOneWork", {Source::kRing}, {{0, false}, {0, false}}),
                    world("TwoRings", {Source::kRing, Source::kRing}, {{0, false}, {1, false}})),
    name_of);

// The larger worlds take a minute together, and many minutes under a sanitizer, which cannot find
// anything here: run them with --gtest_also_run_disabled_tests after a change of the protocol.
INSTANTIATE_TEST_SUITE_P(
    DISABLED_LargeWorlds, EveryInterleaving,
    testing::Values(
        counter_dropped(), deferred_beside_waiter(), helps_beside_waiter(),
        defers_and_waits("DefersAndWaitsForARingWatching", {Source::kRing}),
        world("TwoOfOneCounter", {Source::kCounter}, {{0, true}, {0, false}}),
        world("MessageAndPost", {Source::kMessage, Source::kPost}, {{0, true}, {1, false}}),
        world("CounterAndPost", {Source::kCounter, Source::kPost}, {{0, true}, {1, false}}),
        world("CounterAndRing", {Source::kCounter, Source::kRing}, {{0, false}, {1, false}}),
        two_posters(world("TwoRingsTwoPosters", {Source::kRing, Source::kRing},
                          {{0, false}, {1, false}})),
        world("PolledDroppedAndPost", {Source::kSilent, Source::kPost}, {{0, true}, {1, false}}),
        watching(world("TwoOfOneWorkWatching", {Source::kRing}, {{0, false}, {0, false}}))),
    name_of);

struct Broken {
  std::string name;
  Mutant mutant;
  RoleScenario scenario;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenRule : public testing::TestWithParam<Broken> {};

TEST_P(BrokenRule, IsNoticed) {
  const Interleaving::Report report = explore_role(GetParam().scenario, GetParam().mutant, kLimit);
  std::cout << GetParam().name << ": noticed after " << report.states
            << " states: " << report.failure.substr(0, report.failure.find('\n')) << "\n";
  EXPECT_NE(report.failure, "");
}

INSTANTIATE_TEST_SUITE_P(
    Mutants, BrokenRule,
    testing::Values(Broken{"ArmAfterRecheck", Mutant::kArmAfterRecheck, one_ring()},
                    Broken{"ArmBeforeFree", Mutant::kArmBeforeFree, one_ring()},
                    Broken{"RelaxedLeave", Mutant::kRelaxedLeave, one_ring()},
                    Broken{"RelaxedRing", Mutant::kRelaxedRing, one_ring()},
                    Broken{"NoRecheck", Mutant::kNoRecheck, one_ring()},
                    Broken{"ExpiredKeepsRole", Mutant::kExpiredKeepsRole, one_expires()},
                    Broken{"ForgetsTimers", Mutant::kForgetsTimers, one_polled()},
                    Broken{"NotAwaited", Mutant::kNotAwaited, one_ring()},
                    Broken{"AwaitedBlindly", Mutant::kAwaitedBlindly, one_ring()},
                    Broken{"TornTake", Mutant::kTornTake, one_ring()},
                    Broken{"LateSleepUntil", Mutant::kLateSleepUntil, one_polled()},
                    Broken{"QuietEvent", Mutant::kQuietEvent, one_event()},
                    Broken{"StaysDeaf", Mutant::kStaysDeaf, one_ring()},
                    Broken{"NoSecondLook", Mutant::kNoSecondLook, one_counter()},
                    Broken{"AskAfterLook", Mutant::kAskAfterLook, one_counter()},
                    Broken{"RelaxedAsk", Mutant::kRelaxedAsk, one_counter()},
                    Broken{"RelaxedCount", Mutant::kRelaxedCount, one_counter()},
                    Broken{"UnheardSleep", Mutant::kUnheardSleep, counter_dropped()},
                    Broken{"UnheardLeave", Mutant::kUnheardLeave, counter_dropped()},
                    Broken{"LeaverForgets", Mutant::kLeaverForgets, counter_dropped()},
                    Broken{"ForgottenRing", Mutant::kForgottenRing, deferred_then_plain()},
                    Broken{"ForgottenRingOfAPeer", Mutant::kForgottenRing, deferred_then_rung()},
                    Broken{"UnheardSleepOfMessages", Mutant::kUnheardSleep, message_dropped()},
                    Broken{"QuietMessage", Mutant::kQuietEvent, one_message()},
                    Broken{"StaysMarked", Mutant::kStaysMarked, message_dropped()},
                    Broken{"MarksLate", Mutant::kMarksLate, message_dropped()},
                    Broken{"TakesBackMarked", Mutant::kTakesBackMarked, message_dropped()},
                    Broken{"UnheardLeaveOfMessages", Mutant::kUnheardLeave, message_dropped()},
                    Broken{"ForgetsLeft", Mutant::kForgetsLeft, two_at_once()},
                    Broken{"NoTimer", Mutant::kNoTimer, one_deferred()},
                    Broken{"NoTimerForAPeer", Mutant::kNoTimer, deferred_and_rung()},
                    Broken{"ForgetsToHelp", Mutant::kForgetsToHelp, one_helps()},
                    Broken{"BlindDefer", Mutant::kBlindDefer, one_deferred()},
                    Broken{"LateDisarm", Mutant::kLateDisarm, deferred_and_rung()},
                    Broken{"OwedFirst", Mutant::kOwedFirst, deferred_then_rung()}),
    [](const auto& broken) { return broken.param.name; });

}  // namespace
}  // namespace ronde::test
