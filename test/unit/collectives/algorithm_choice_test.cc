// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/between_hosts.h"
#include "collectives/gather.h"

namespace ronde::collectives {
namespace {

TEST(AlgorithmChoice, NamesGoBothWays) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect, Algorithm::kGather}) {
    EXPECT_EQ(algorithm_of(name_of(algorithm)), algorithm);
  }
  EXPECT_EQ(algorithm_of("auto"), std::nullopt);
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
    EXPECT_GT(limits_for(hosts).direct, limits_for(hosts).gather) << hosts;
    EXPECT_GT(limits_for(hosts).gather.value(), 1024) << hosts;
  }
}

// 4 hosts: gather costs 44 us + 24 ns/byte, direct 92 us + 12.75, the ring 132 us + 12.
TEST(AlgorithmChoice, IsTheFastestByTheModel) {
  EXPECT_EQ(limits_for(4).gather.value(), 4'267);
  EXPECT_EQ(limits_for(4).direct.value(), 53'333);
  EXPECT_EQ(limits_for(3).direct.value(), 30'000);
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
