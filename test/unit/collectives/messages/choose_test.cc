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
  for (const auto* const name : {"auto", "square", "Ring", ""}) {
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
    EXPECT_GT(limits_for(hosts).direct, limits_for(hosts).gather) << hosts;
  }
}

TEST(AlgorithmChoice, AReduceScatterTakesDirectAndThenTheRing) {
  EXPECT_EQ(choose_scatter_algorithm(base::Bytes(8), 2), Algorithm::kRing) << "it is the same";
  for (const int hosts : {3, 4, 5, 8, 100}) {
    const base::Bytes limit = limits_for(hosts).direct;
    EXPECT_EQ(choose_scatter_algorithm(base::Bytes(8), hosts), Algorithm::kDirect) << hosts;
    EXPECT_EQ(choose_scatter_algorithm(limit, hosts), Algorithm::kDirect) << hosts;
    EXPECT_EQ(choose_scatter_algorithm(limit + base::Bytes(1), hosts), Algorithm::kRing) << hosts;
  }
}

// 3 hosts: gather costs 34 us + 16 ns/byte, direct 68 us + 11.33, the ring 88 us + 10.67.
TEST(AlgorithmChoice, IsTheFastestByTheModel) {
  EXPECT_EQ(limits_for(3).gather.value(), 7'286);
  EXPECT_EQ(limits_for(3).direct.value(), 30'000);
  // 4 hosts: gather costs 44 us + 24 ns/byte, direct 92 us + 12.75, the ring 132 us + 12.
  EXPECT_EQ(limits_for(4).gather.value(), 4'267);
  EXPECT_EQ(limits_for(4).direct.value(), 53'333);
  // 8 hosts: gather costs 66 us + 56 ns/byte, direct 188 us + 14.875.
  EXPECT_EQ(limits_for(8).gather.value(), 2'967);
  EXPECT_EQ(limits_for(5).direct.value(), 75'000);
  // With more hosts the limit of direct is one message for each chunk.
  for (int hosts = 6; hosts <= 100; ++hosts) {
    EXPECT_EQ(limits_for(hosts).direct.value(),
              std::llround(double{kMessageBytes} * hosts / (hosts - 1)))
        << hosts;
  }
}

}  // namespace
}  // namespace ronde::collectives
