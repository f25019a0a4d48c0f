// SPDX-License-Identifier: Apache-2.0
// A rank 0 that gets no core while the others wait for its answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/meet/meet.h"
#include "test/unit/runtime/meet/meeting_ranks.h"

namespace ronde::runtime {
namespace {

using base::Instant;
using std::chrono::milliseconds;
using std::chrono::seconds;

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
TEST(MeetLateAnswer, NamesTheRankThatIsMissing) {
  const MeetingRanks job(3, point_on_host());
  base::Status rank_1;
  std::atomic<bool> ended{false};
  std::thread waits([&] {
    rank_1 = meet(job.plan_of(1), job.clock, job.clock.after(seconds(3))).status();
    ended = true;
  });
  const StallingClock clock(ended);
  const base::Status rank_0 = meet(job.plan_of(0), clock, clock.after(seconds(60))).status();
  waits.join();
  EXPECT_EQ(rank_1.code(), base::Code::kDeadline) << rank_1.message();
  EXPECT_EQ(rank_0.code(), base::Code::kDeadline) << rank_0.message();
  EXPECT_THAT(rank_0.message(), ::testing::StartsWith("rank 2 (host "));
  EXPECT_THAT(rank_0.message(), ::testing::HasSubstr(") took no part in meeting"));
  EXPECT_EQ(rank_0.rank(), 2);
}

}  // namespace
}  // namespace ronde::runtime
