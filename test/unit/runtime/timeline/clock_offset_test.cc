// SPDX-License-Identifier: Apache-2.0
// Clocks that are apart, over a network of any delay: the true offset is inside the error.
#include "runtime/timeline/clock_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

namespace ronde::runtime {
namespace {

using base::Instant;
using base::JobShape;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// An exchange in which each rank sends at its time and has all parts after the last was sent.
std::vector<ClockReading> exchange_of(const JobShape& shape, const std::vector<Instant>& ahead,
                                      Instant begin, std::mt19937& random) {
  std::vector<Instant> sent;
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    sent.push_back(begin + microseconds(random() % 1000));
  }
  const Instant last = *std::max_element(sent.begin(), sent.end());
  std::vector<ClockReading> readings;
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    const Instant of_host = ahead[static_cast<std::size_t>(shape.host_of(rank))];
    const Instant received = last + microseconds(1 + random() % 500);
    readings.push_back({sent[static_cast<std::size_t>(rank)] + of_host, received + of_host});
  }
  return readings;
}

TEST(ClockOffsets, TheTrueOffsetIsWithinTheError) {
  const std::vector<std::int32_t> leaders = {0, 0, 2, 2, 4};
  const JobShape shape = JobShape::of_leaders(leaders).value();
  const std::vector<Instant> ahead = {milliseconds(0), milliseconds(70'000), milliseconds(-3)};
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<ClockReading>> rounds;
    base::Nanoseconds widest{};
    for (int round = 0; round < 4; ++round) {
      rounds.push_back(exchange_of(shape, ahead, milliseconds(100'000 + 10 * round), random));
      for (std::int32_t host = 1; host < shape.hosts(); ++host) {
        const ClockOffset found = offset_of(host, shape, rounds);
        const base::Nanoseconds wrong = found.offset + ahead[static_cast<std::size_t>(host)];
        EXPECT_LE(std::max(wrong, -wrong), found.error) << seed;
        EXPECT_GE(found.error.count(), 0);
        widest = std::max(widest, found.error);
      }
    }
    EXPECT_LT(widest, milliseconds(2));
    EXPECT_EQ(offset_of(0, shape, rounds).offset.count(), 0);
    EXPECT_EQ(offset_of(0, shape, rounds).error.count(), 0);
  }
}

TEST(ClockOffsets, OneHostExchangesNothing) {
  const base::SteadyClock clock;
  const auto found =
      measure_offset(0, JobShape::one_host(3), clock, [](std::span<const std::byte>) {
        ADD_FAILURE();
        return base::Result<std::vector<std::vector<std::byte>>>(
            base::Status::error(base::Code::kInternal, "no exchange is needed"));
      });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->error.count(), 0);
}

}  // namespace
}  // namespace ronde::runtime
