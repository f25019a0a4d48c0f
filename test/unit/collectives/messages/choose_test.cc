// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/messages/choose.h"
#include "collectives/messages/gather.h"

namespace ronde::collectives {
namespace {

TEST(AlgorithmChoice, NamesGoBothWays) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect, Algorithm::kGather}) {
    EXPECT_EQ(algorithm_of(name_of(algorithm)), algorithm);
  }
  for (const auto* const name : {"auto", "square", "short square", ""}) {
    EXPECT_EQ(algorithm_of(name), std::nullopt) << name << " cannot be asked for";
  }
}

TEST(AlgorithmChoice, GrowsFromGatherOverDirectToTheRing) {
  for (int hosts = 1; hosts <= 100; ++hosts) {
    int last = static_cast<int>(Algorithm::kGather);
    for (std::int64_t bytes = 0; bytes < (1 << 28); bytes = bytes * 3 / 2 + 1) {
      const int now = static_cast<int>(choose_algorithm(base::Bytes(bytes), hosts));
      ASSERT_LE(now, last) << bytes << " bytes, " << hosts << " hosts";
      last = now;
    }
    EXPECT_EQ(choose_algorithm(base::Bytes(0), hosts), Algorithm::kGather);
    EXPECT_EQ(last, static_cast<int>(Algorithm::kRing));
    EXPECT_LE(limits_for(hosts).gather.value(), kGatherWindowBytes);
  }
}

// Between two hosts the ring already takes two steps.
TEST(AlgorithmChoice, DirectIsForMoreThanTwoHosts) {
  EXPECT_EQ(limits_for(2).direct.value(), 0);
  EXPECT_EQ(limits_for(2).gather.value(), kGatherWindowBytes);
  for (int hosts = 3; hosts <= 100; ++hosts) {
    EXPECT_GT(limits_for(hosts).gather.value(), 1024) << hosts;
    if (hosts == 4) continue;  // see below
    EXPECT_GT(limits_for(hosts).direct, limits_for(hosts).gather) << hosts;
  }
}

TEST(AlgorithmChoice, FourHostsStandInASquare) {
  const AlgorithmLimits limits = limits_for(4);
  EXPECT_LT(limits.gather, limits.short_square);
  EXPECT_LT(limits.short_square, limits.square);
  EXPECT_EQ(limits.direct.value(), 0);
  EXPECT_EQ(choose_algorithm(base::Bytes(8192), 4), Algorithm::kShortSquare);
  EXPECT_EQ(choose_algorithm(base::Bytes(16384), 4), Algorithm::kSquare);
  for (int hosts = 1; hosts <= 100; ++hosts) {
    if (hosts == 4) continue;
    EXPECT_EQ(limits_for(hosts).square.value(), 0) << hosts;
    EXPECT_EQ(limits_for(hosts).short_square.value(), 0) << hosts;
  }
}

TEST(AlgorithmChoice, AReduceScatterTakesDirectAndThenTheRing) {
  for (const int hosts : {3, 5, 8, 100}) {
    EXPECT_EQ(direct_scatter_limit(hosts), limits_for(hosts).direct) << hosts;
  }
  EXPECT_EQ(direct_scatter_limit(4).value(), 53'333);
  EXPECT_EQ(choose_scatter_algorithm(base::Bytes(8), 2), Algorithm::kRing) << "it is the same";
  EXPECT_EQ(choose_scatter_algorithm(base::Bytes(8), 4), Algorithm::kDirect);
  EXPECT_EQ(choose_scatter_algorithm(base::Bytes(53'334), 4), Algorithm::kRing);
}

// 3 hosts: gather costs 34 us + 16 ns/byte, direct 68 us + 11.33, the ring 88 us + 10.67.
TEST(AlgorithmChoice, IsTheFastestByTheModel) {
  EXPECT_EQ(limits_for(3).gather.value(), 7'286);
  EXPECT_EQ(limits_for(3).direct.value(), 30'000);
  // 8 hosts: gather costs 66 us + 56 ns/byte, direct 188 us + 14.875.
  EXPECT_EQ(limits_for(8).gather.value(), 2'967);
  EXPECT_EQ(limits_for(5).direct.value(), 75'000);
  // Of more hosts what limits direct is one message for each chunk.
  for (int hosts = 6; hosts <= 100; ++hosts) {
    EXPECT_EQ(limits_for(hosts).direct.value(),
              std::llround(double{kMessageBytes} * hosts / (hosts - 1)))
        << hosts;
  }
}

}  // namespace
}  // namespace ronde::collectives
