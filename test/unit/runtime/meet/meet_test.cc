// SPDX-License-Identifier: Apache-2.0
// Ranks that meet, and what each of them says where they cannot.
#include "runtime/meet/meet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/wire/door.h"
#include "base/wire/interfaces.h"
#include "runtime/meet/messages.h"
#include "runtime/meet/place.h"
#include "test/support/strangers.h"
#include "test/unit/runtime/meet/meeting_ranks.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Status;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

void expect_all_well(MeetingRanks& job, int rounds) {
  std::vector<int> everybody(static_cast<std::size_t>(job.size));
  for (std::size_t i = 0; i < everybody.size(); ++i) everybody[i] = static_cast<int>(i);
  const auto results = job.run([&](std::int32_t rank, collectives::Meeting& meeting) {
    EXPECT_EQ(meeting.rank(), rank);
    EXPECT_EQ(meeting.size(), job.size);
    EXPECT_EQ(meeting.ranks_on_this_host(), everybody);
    EXPECT_EQ(meeting.text(), text_of(job.plan.point) + " (a test)");
    return exchange_and_check(rank, meeting, rounds, job.clock);
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
  EXPECT_EQ(job.warnings.text(), "");
}

TEST(Meet, OnOneHostAndOverTcp) {
  for (const std::int32_t ranks : {2, 3, 16}) {
    for (const MeetingPoint& point : {point_on_host(), point_over_tcp()}) {
      MeetingRanks job(ranks, point);
      expect_all_well(job, 4);
    }
  }
  MeetingRanks at_a_name(3, {"localhost", free_port(), false});
  expect_all_well(at_a_name, 2);
  const auto all = base::list_interfaces();
  ASSERT_TRUE(all.ok());
  const auto ipv6 = [](const auto& one) { return one.address == *base::parse_address("::1"); };
  if (std::ranges::none_of(*all, ipv6)) return;
  MeetingRanks over_ipv6(3, {"::1", free_port(), false});
  expect_all_well(over_ipv6, 2);
}

// All in one process, so the clients' threads share its cores with rank 0.
TEST(Meet, ManyRanks) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(256, tcp ? point_over_tcp() : point_on_host());
    const auto began = job.clock.now();
    expect_all_well(job, 1);
    const auto took = std::chrono::duration_cast<milliseconds>(job.clock.now() - began).count();
    std::printf("256 ranks met over %s in %lld ms\n", tcp ? "TCP" : "a Unix socket",
                static_cast<long long>(took));
  }
}

TEST(Meet, TheSamePlaceAgainAndAgain) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(3, tcp ? point_over_tcp() : point_on_host());
    for (int i = 0; i < 5; ++i) expect_all_well(job, 1);
  }
}

TEST(Meet, LargeParts) {
  MeetingRanks job(4, point_over_tcp());
  const auto results = job.run([&](std::int32_t rank, collectives::Meeting& meeting) -> Status {
    const std::vector<std::byte> mine(3'000'000, static_cast<std::byte>(rank + 1));
    const auto all =
        meeting.allgather(mine, "exchanging much", {}, job.clock, job.clock.after(seconds(60)));
    RONDE_RETURN_IF_ERROR(all.status());
    for (std::size_t other = 0; other < all->size(); ++other) {
      EXPECT_EQ((*all)[other],
                std::vector<std::byte>(3'000'000, static_cast<std::byte>(other + 1)));
    }
    return exchange_and_check(rank, meeting, 2, job.clock);
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
}

TEST(Meet, RankZeroComesLast) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(3, tcp ? point_over_tcp() : point_on_host());
    const auto results = job.run({}, [](std::int32_t rank, MeetingPlan& /*mine*/) {
      if (rank == 0) std::this_thread::sleep_for(milliseconds(700));
    });
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
  }
}

// Who is told what while the door stays open, and that nothing listens after the last engine.
TEST(Meet, TheDoorStaysOpenWhileTheJobLives) {
  for (const MeetingPoint& point : {point_on_host(), point_over_tcp()}) {
    MeetingRanks job(2, point);
    Met rank_0 = Status::error(Code::kInternal, "it has not met");
    std::thread meets([&] { rank_0 = job.meet_one(job.plan_of(0)); });
    const Met rank_1 = job.meet_one(job.plan_of(1));
    meets.join();
    ASSERT_TRUE(rank_0.ok() && rank_1.ok());
    (*rank_0)->started();
    const collectives::Visitors visitors = (*rank_0)->visitors();
    std::atomic<bool> over{false};
    std::thread agent([&] {
      while (!over) {
        pollfd entry{visitors.fd, POLLIN, 0};
        if (::poll(&entry, 1, 10) != 1) continue;
        EXPECT_TRUE(visitors.answer());
      }
    });
    expect_all_say({ask_rank_0(job.plan_of(0), job.clock).value_or(Status())},
                   Code::kInvalidArgument, {"is a second rank 0 at", "where rank 0 (host "});
    if (!point.one_host) {
      MeetingPlan with_another_secret = job.plan_of(0);
      with_another_secret.secret = secret_of("another secret of this test");
      EXPECT_FALSE(ask_rank_0(with_another_secret, job.clock)) << "that is no rank 0 of this job";
    }
    MeetingPlan wider = job.plan_of(0);
    wider.size = 3;
    expect_all_say({job.meet_one(wider).status()}, Code::kInvalidArgument,
                   {"this process has an engine of a job without a name with 2 ranks open at",
                    "close it first"});
    MeetingPlan third = job.plan_of(2);
    third.size = 3;
    expect_all_say({job.meet_one(third).status()}, Code::kInvalidArgument,
                   {"rank 2 (host ", "came to a job that is complete at", "has all 2 ranks"});
    EXPECT_FALSE(MeetingListener::open(point, "", {}).ok());
    // A further engine of rank 1 waits for rank 0's, and is told to come again when the first ends.
    Met again = Status::error(Code::kInternal, "it has not met");
    std::thread waits([&] { again = job.meet_one(job.plan_of(1)); });
    std::this_thread::sleep_for(milliseconds(50));
    over = true;
    agent.join();
    EXPECT_TRUE((*rank_0)->close().ok());
    EXPECT_FALSE(visitors.answer()) << "an agent would watch it for ever";
    EXPECT_TRUE(job.meet_one(job.plan_of(0)).ok());
    waits.join();
    EXPECT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_TRUE(MeetingListener::open(point, "", {}).ok());
    EXPECT_THAT(job.warnings.text(), ::testing::HasSubstr("turned away: the job is complete"));
  }
}

// Where rank 0 has no descriptor left, who comes waits until it has one.
TEST(Meet, ADoorWithoutDescriptorsRestsAndGoesOn) {
  MeetingRanks job(2, point_on_host());
  Met rank_0 = Status::error(Code::kInternal, "it has not met");
  std::thread meets([&] { rank_0 = job.meet_one(job.plan_of(0)); });
  const Met rank_1 = job.meet_one(job.plan_of(1));
  meets.join();
  ASSERT_TRUE(rank_0.ok() && rank_1.ok());
  const collectives::Visitors visitors = (*rank_0)->visitors();
  const auto knock =
      connect_on_host(job.plan.point, job.clock, job.clock.after(std::chrono::seconds(5)));
  ASSERT_TRUE(knock.ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = ::dup(knock->get());  // that is free
  ::close(lowest);
  const rlimit none{static_cast<rlim_t>(lowest), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(visitors.answer());
  pollfd entry{visitors.fd, POLLIN, 0};
  const int rests = ::poll(&entry, 1, 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(rests, 0) << "the agent would spin";
  EXPECT_EQ(::poll(&entry, 1, 5000), 1);
  EXPECT_TRUE(visitors.answer());
  EXPECT_EQ(strangers::introduce(*knock, {},
                                 encode(MeetingHello{kMeetingVersion + 1, 1, 2, {}, "a", "b", 3}),
                                 [&] { (void)visitors.answer(); }),
            base::HelloReader::Got::kProven);
  EXPECT_TRUE(visitors.answer());
  const auto said = strangers::hear(*knock, 4096);
  const std::string text(reinterpret_cast<const char*>(said.data()), said.size());
  EXPECT_THAT(text, ::testing::HasSubstr("another version of Ronde is rank 0 at"));
  EXPECT_THAT(job.warnings.text(), ::testing::HasSubstr("is not answered for now: "));
}

TEST(Meet, WithoutRankZero) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(2, tcp ? point_over_tcp() : point_on_host());
    job.limit = seconds(1);
    const Status alone = job.meet_one(job.plan_of(1)).status();
    expect_all_say({alone}, Code::kDeadline,
                   {"rank 1 did not reach rank 0 at " + text_of(job.plan.point),
                    "Connection refused", "was not started"});
    EXPECT_EQ(alone.rank(), 0);
  }
}

TEST(Meet, AtANameThatNobodyKnows) {
  MeetingRanks job(2, {"no-such-host.invalid", 4711, false});
  job.limit = seconds(1);
  expect_all_say({job.meet_one(job.plan_of(1)).status()}, Code::kDeadline,
                 {"rank 1 did not reach rank 0 at no-such-host.invalid:4711", "was not found"});
}

TEST(Meet, RankZeroOnAnotherHostThanItsAddress) {
  MeetingRanks job(2, {"192.0.2.1", 4711, false});
  expect_all_say({job.meet_one(job.plan_of(0)).status()}, Code::kSystem,
                 {"rank 0 cannot listen at the meeting point 192.0.2.1:4711", "has no such address",
                  "start rank 0 on the host that has it"});
}

TEST(Meet, APlaceThatIsTaken) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(2, tcp ? point_over_tcp() : point_on_host());
    const auto taken = MeetingListener::open(job.plan.point, "", {});
    ASSERT_TRUE(taken.ok());
    expect_all_say({job.meet_one(job.plan_of(0)).status()}, Code::kSystem,
                   {"rank 0 cannot listen at the meeting point " + text_of(job.plan.point),
                    "Address already in use", "choose another port"});
  }
}

TEST(Meet, RanksThatWereToldWrong) {
  MeetingRanks sizes(3, point_on_host());
  const auto another_size = [](std::int32_t rank, MeetingPlan& mine) {
    if (rank == 2) mine.size = 4;
  };
  expect_all_say(sizes.run({}, another_size), Code::kInvalidArgument,
                 {"rank 2 (host ", "was told that the job has 4 ranks, and rank 0 (host ",
                  "that it has 3", "RONDE_SIZE"});
  MeetingRanks twice(3, point_on_host());
  const auto rank_1 = [](std::int32_t rank, MeetingPlan& mine) { mine.rank = std::min(rank, 1); };
  expect_all_say(twice.run({}, rank_1), Code::kInvalidArgument,
                 {"two processes came as rank 1: rank 1 (host ", "RONDE_RANK",
                  "if two jobs begin here", "RONDE_JOB"});
}

TEST(Meet, OverHostsWithoutASecret) {
  MeetingRanks job(2, point_over_tcp());
  job.plan.secret = MeetingSecret();
  expect_all_say(job.run(), Code::kInvalidArgument,
                 {"without a secret", "export RONDE_JOB_SECRET=$(head", "RONDE_MEET=localhost:"});
}

TEST(Meet, ARankThatEndsMeanwhile) {
  for (const std::int32_t victim : {2, 0}) {
    MeetingRanks job(3, point_on_host());
    auto results = job.run([&](std::int32_t rank, collectives::Meeting& meeting) -> Status {
      if (rank == victim) meeting.abandon();
      return rank == victim ? Status() : exchange_and_check(rank, meeting, 1, job.clock);
    });
    results.erase(results.begin() + victim);
    expect_all_say(results, Code::kPeerFailed,
                   {"rank " + std::to_string(victim) + " (host ",
                    ") ended while the ranks were exchanging numbers"});
    EXPECT_EQ(results[1].rank(), victim);
  }
}

// A rank 0 that lets rank 1 in, says so much, and vanishes; returns the error of rank 1.
Status meet_false_rank_0(const MeetingRanks& job, const std::vector<std::byte>& said) {
  Status rank_1;
  std::thread meets([&] { rank_1 = job.meet_one(job.plan_of(1)).status(); });
  {
    const auto listener = MeetingListener::open(job.plan.point, "", {});
    EXPECT_TRUE(listener.ok());
    const auto has_come = [&](std::vector<base::Guest>& guests) {
      if (guests.empty()) return false;
      EXPECT_TRUE(said.empty() || base::send_hello(guests.front().socket, said));
      return true;
    };
    strangers::keep_door(door_of(*listener, job.plan.point, {}, job.size), has_come);
  }
  meets.join();
  return rank_1;
}

TEST(Meet, RankZeroEndsBeforeAllHaveCome) {
  expect_all_say({meet_false_rank_0(MeetingRanks(3, point_on_host()), {})}, Code::kPeerFailed,
                 {"rank 0 ended while the ranks were meeting at"});
}

// Whatever rank 0 has let through, each rank checks who the others are.
TEST(Meet, HellosOfAnotherRankOrSize) {
  const auto hello = [](std::int32_t rank, std::int32_t size) {
    return encode(MeetingHello{kMeetingVersion, rank, size, {}, "node7", "id", 4711});
  };
  const auto meet_one_who_says = [&](std::int32_t rank, std::int32_t size) {
    return meet_false_rank_0(MeetingRanks(3, point_on_host()),
                             encode(MeetingAll{0, {hello(0, 3), hello(1, 3), hello(rank, size)}}));
  };
  const std::string who = " (host node7, pid 4711) ";
  expect_all_say({meet_one_who_says(2, 4)}, Code::kInvalidArgument,
                 {"rank 2" + who + "was told that the job has 4 ranks, and rank 1 (host ",
                  "that it has 3", "RONDE_SIZE"});
  expect_all_say({meet_one_who_says(3, 3)}, Code::kInvalidArgument,
                 {"rank 3" + who + "is no rank of a job of 3"});
  expect_all_say({meet_one_who_says(1, 3)}, Code::kInvalidArgument,
                 {"rank 1" + who + "came in the place of rank 2", "RONDE_RANK"});
}

TEST(Meet, ARankOfAnotherJobIsToldSoAndTheJobGoesOn) {
  for (const MeetingPoint& point : {point_on_host(), point_over_tcp()}) {
    MeetingRanks job(2, point);
    Met rank_0 = Status::error(Code::kInternal, "it has not met");
    std::thread meets([&] { rank_0 = job.meet_one(job.plan_of(0)); });
    MeetingPlan other = job.plan_of(1);
    other.job = "step 1001.0";
    expect_all_say({job.meet_one(other).status()}, Code::kInvalidArgument,
                   {"rank 1 (host ", "is of job 'step 1001.0', and came to rank 0 (host ",
                    "of a job without a name at", "RONDE_JOB"});
    const Met rank_1 = job.meet_one(job.plan_of(1));
    meets.join();
    EXPECT_TRUE(rank_0.ok()) << rank_0.status().message();
    EXPECT_TRUE(rank_1.ok()) << rank_1.status().message();
    EXPECT_THAT(job.warnings.text(),
                ::testing::HasSubstr("turned away: it was a rank of another job"));
  }
}

TEST(Meet, AfterItsEnd) {
  MeetingRanks job(2, point_on_host());
  const auto results = job.run([&](std::int32_t, collectives::Meeting& meeting) {
    EXPECT_TRUE(meeting.close().ok());
    return meeting.allgather({}, "doing more", {}, job.clock, job.clock.after(seconds(2))).status();
  });
  expect_all_say(results, Code::kClosed, {"the meeting of the ranks is over"});
}

}  // namespace
}  // namespace ronde::runtime
