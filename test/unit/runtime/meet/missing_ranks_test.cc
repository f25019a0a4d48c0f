// SPDX-License-Identifier: Apache-2.0
// Ranks that do not come to a meeting, or to a later exchange, and who is told so, by whom and
// when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "runtime/meet/meet.h"
#include "test/unit/runtime/meet/meeting_ranks.h"

namespace ronde::runtime {
namespace {

using base::Code;
using base::Instant;
using base::Status;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Leaves rank 0 two seconds in which its answer may come late.
constexpr seconds kLimit(6);

TEST(MeetMissing, ARankThatDoesNotCome) {
  for (const bool tcp : {false, true}) {
    MeetingRanks job(4, tcp ? point_over_tcp() : point_on_host());
    job.limit = kLimit;
    std::vector<Status> results(3);
    std::vector<std::thread> threads;
    const std::int32_t come[] = {0, 1, 3};
    for (std::size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] { results[i] = job.meet_one(job.plan_of(come[i])).status(); });
    }
    for (auto& thread : threads) thread.join();
    expect_all_say(results, Code::kDeadline,
                   {"rank 2 (host ", ") took no part in meeting at " + text_of(job.plan.point)});
    for (const Status& result : results) EXPECT_EQ(result.rank(), 2);
  }
}

TEST(MeetMissing, TheMostImpatientRankGetsItsAnswerInTime) {
  MeetingRanks job(3, point_on_host());
  Status impatient;
  Status patient;
  std::thread rank_0([&] { patient = job.meet_one(job.plan_of(0)).status(); });
  impatient = meet(job.plan_of(1), job.clock, job.clock.after(kLimit)).status();
  rank_0.join();
  expect_all_say({impatient, patient}, Code::kDeadline,
                 {"rank 2 (host ", "took no part in meeting"});
}

// What ranks 0 and 1 of 3 are told of an exchange to which rank 2 does not come.
std::vector<Status> exchange_without_rank_2(const collectives::StartTrouble& of_rank_1) {
  std::latch others(2);
  MeetingRanks job(3, point_on_host());
  auto results = job.run([&](std::int32_t rank, collectives::Meeting& meeting) -> Status {
    RONDE_RETURN_IF_ERROR(exchange_and_check(rank, meeting, 1, job.clock));
    if (rank == 2) {
      others.wait();
      return {};
    }
    auto status =
        meeting
            .allgather({}, "doing more", rank == 1 ? of_rank_1 : collectives::StartTrouble(),
                       job.clock, job.clock.after(kLimit))
            .status();
    others.count_down();
    return status;
  });
  results.pop_back();
  return results;
}

TEST(MeetMissing, ARankThatTakesNoPartInALaterExchange) {
  expect_all_say(
      exchange_without_rank_2({}), Code::kDeadline,
      {"rank 2 (host ", "took no part in doing more", "its last step was exchanging numbers"});
}

TEST(MeetMissing, TheTroubleOfOneIsTheErrorOfAllWhoWait) {
  expect_all_say(exchange_without_rank_2({1, 1, "its disk is full"}), Code::kPeerFailed,
                 {"rank 1 cannot start: its disk is full"});
}

// Who looks at it after a while gets no core until the others have ended.
class StallingClock final : public base::Clock {
 public:
  explicit StallingClock(const std::atomic<bool>& ended) : ended_(ended) {}
  [[nodiscard]] Instant now() const override {
    while (real_.now() > stalls_ && !ended_) std::this_thread::sleep_for(milliseconds(1));
    return real_.now();
  }

 private:
  base::SteadyClock real_;
  const Instant stalls_ = real_.now() + milliseconds(1500);
  const std::atomic<bool>& ended_;
};

// Rank 1 has given up meanwhile, and is not the one who is missing.
TEST(MeetMissing, ARankZeroThatGotNoCoreNamesTheRankThatIsMissing) {
  const MeetingRanks job(3, point_on_host());
  Status rank_1;
  std::atomic<bool> ended{false};
  std::thread waits([&] {
    rank_1 = meet(job.plan_of(1), job.clock, job.clock.after(seconds(3))).status();
    ended = true;
  });
  const StallingClock clock(ended);
  const Status rank_0 = meet(job.plan_of(0), clock, clock.after(seconds(60))).status();
  waits.join();
  EXPECT_EQ(rank_1.code(), Code::kDeadline) << rank_1.message();
  EXPECT_EQ(rank_0.code(), Code::kDeadline) << rank_0.message();
  EXPECT_THAT(rank_0.message(), ::testing::StartsWith("rank 2 (host "));
  EXPECT_THAT(rank_0.message(), ::testing::HasSubstr(") took no part in meeting"));
  EXPECT_EQ(rank_0.rank(), 2);
}

}  // namespace
}  // namespace ronde::runtime
