// SPDX-License-Identifier: Apache-2.0
// Clocks that drift apart are compared each minute, and the trace goes by the last comparison.
#include "runtime/messages/clock_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "test/support/memory_host.h"
#include "test/unit/runtime/timeline/trace_kit.h"

namespace ronde::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class ClockWatches : public Timelines {
 protected:
  // A rank alone on its host, with a clock of its own.
  struct Side {
    Side(std::int32_t rank, const base::JobShape& shape, ClockWatches& world)
        : context{board, shape, rank, config, clock, log},
          timeline({rank, rank, 2, "host"}, board, clock, log),
          watch(context, timeline, [&world, rank](std::int32_t to, const Record& record) {
            EXPECT_EQ(to, 1 - rank);
            world.on_the_way.emplace_back(to, record);
            return base::Status();
          }) {}
    const base::Config config = base::Config::from_environment({}).value();
    const base::Log log{base::LogLevel::kOff, 0};
    collectives::Board board = testing::make_memory_boards({.ranks = 1}).at(0);
    base::ManualClock clock;
    RankContext context;
    Timeline timeline;
    ClockWatch watch;
  };

  void pass(base::Nanoseconds span) {
    first.clock.advance(span);
    second.clock.advance(span);
  }
  // Carries the frames, the n-th of which takes so long.
  void carry(const std::vector<base::Nanoseconds>& delays) {
    for (std::size_t n = 0; !on_the_way.empty(); ++n) {
      const auto [to, record] = on_the_way.front();
      on_the_way.pop_front();
      pass(n < delays.size() ? delays[n] : microseconds(100));
      EXPECT_TRUE((to == 0 ? first : second).watch.on_record(1 - to, record).ok());
    }
  }

  const base::JobShape shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 1}).value();
  std::deque<std::pair<std::int32_t, Record>> on_the_way;
  Side first{0, shape, *this};
  Side second{1, shape, *this};
};

TEST_F(ClockWatches, CompareEachMinuteWhileATimelineIsOn) {
  first.clock.advance(seconds(5));
  ASSERT_TRUE(first.watch.check().ok() && second.watch.check().ok());
  EXPECT_TRUE(on_the_way.empty()) << "no timeline is on";
  ASSERT_TRUE(first.timeline.start(path_, false).ok() && second.timeline.start(path_, false).ok());
  ASSERT_TRUE(first.watch.check().ok() && second.watch.check().ok());
  std::vector<base::Nanoseconds> delays(6, microseconds(100));
  delays.push_back(milliseconds(30));  // of the last question, which does not count
  carry(delays);
  for (int minute = 1; minute <= 3; ++minute) {
    pass(seconds(59));
    ASSERT_TRUE(second.watch.check().ok());
    EXPECT_TRUE(on_the_way.empty()) << minute;
    pass(seconds(1));
    first.clock.advance(milliseconds(minute == 2 ? 7 : 0));  // it drifts
    EXPECT_GE(second.clock.now(), second.watch.next() - milliseconds(100));
    ASSERT_TRUE(second.watch.check().ok());
    carry({});
  }
  second.timeline.add(TracedMark{MarkKind::kInstant, "mark", 1, second.clock.now()});
  const base::Instant now = first.clock.now();
  ASSERT_TRUE(first.timeline.stop().ok() && second.timeline.stop().ok());
  const std::vector<json> compared = with(events(1), "name", "clocks compared");
  ASSERT_EQ(compared.size(), 4U);
  for (std::size_t i = 0; i < compared.size(); ++i) {
    const std::int64_t ahead = i < 2 ? 5'000'000'000 : 5'007'000'000;
    const auto found = compared[i].at("args").at("offset_ns").get<std::int64_t>();
    const auto error = compared[i].at("args").at("error_ns").get<std::int64_t>();
    EXPECT_LE(std::abs(found - ahead), error) << i;
    EXPECT_LE(error, 100'000) << i;
  }
  const json mark = with(events(1), "name", "mark").at(0);
  EXPECT_NEAR(static_cast<double>(nanoseconds(mark, "ts")), static_cast<double>(now.count()), 1e5);
}

TEST_F(ClockWatches, RestWhileItIsOff) {
  ASSERT_TRUE(second.timeline.start(path_, false).ok());
  ASSERT_TRUE(second.watch.check().ok());
  carry({});
  ASSERT_TRUE(second.timeline.stop().ok());
  pass(minutes(5));
  ASSERT_TRUE(second.watch.check().ok());
  EXPECT_TRUE(on_the_way.empty());
  EXPECT_EQ(second.watch.next(), base::kNever);
}

}  // namespace
}  // namespace ronde::runtime
