// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/config.h"
#include "base/text.h"
#include "collectives/messages/direct.h"
#include "collectives/messages/gather.h"
#include "collectives/messages/ring.h"

namespace ronde::collectives {
namespace {

std::int64_t most(std::string_view name, int hosts) {
  return algorithm_of(name)->allreduce.most(hosts).value();
}

std::string_view chosen(std::int64_t bytes, int hosts) {
  const Way& way = choose_way(nullptr, &Algorithm::allreduce, base::Bytes(bytes), hosts);
  for (const Algorithm& row : algorithms()) {
    if (&row.allreduce == &way) return row.name;
  }
  return "none";
}

TEST(AlgorithmChoice, TheSettingNamesTheAlgorithmsOfTheTableAndAuto) {
  std::set<std::string> words{"auto"};
  for (const Algorithm& row : algorithms()) {
    EXPECT_TRUE(words.insert(std::string(row.name)).second) << row.name << " is there twice";
    EXPECT_EQ(algorithm_of(row.name), &row);
  }
  for (const base::Setting& setting : base::settings()) {
    if (setting.name != "RONDE_ALGORITHM") continue;
    EXPECT_THAT(base::words_of(setting.choices), testing::UnorderedElementsAreArray(words));
  }
  for (const auto* const name : {"auto", "square", "Ring", ""}) {
    EXPECT_EQ(algorithm_of(name), nullptr) << name << " cannot be asked for";
  }
}

TEST(AlgorithmChoice, ANamedAlgorithmServesEveryLength) {
  for (const Algorithm& row : algorithms()) {
    for (const std::int64_t bytes : {0, 1 << 30}) {
      EXPECT_EQ(&choose_way(&row, &Algorithm::allreduce, base::Bytes(bytes), 4), &row.allreduce);
      EXPECT_EQ(&choose_way(&row, &Algorithm::reduce_scatter, base::Bytes(bytes), 4),
                &row.reduce_scatter);
    }
  }
}

TEST(AlgorithmChoice, GrowsFromGatherOverDirectToTheRing) {
  for (int hosts = 1; hosts <= 100; ++hosts) {
    const Algorithm* last = &algorithms().front();
    for (std::int64_t bytes = 0; bytes < (1 << 28); bytes = bytes * 3 / 2 + 1) {
      const Algorithm* const now = algorithm_of(chosen(bytes, hosts));
      ASSERT_GE(now, last) << bytes << " bytes, " << hosts << " hosts";
      last = now;
    }
    EXPECT_EQ(chosen(0, hosts), "gather");
    EXPECT_EQ(last->name, "ring");
    EXPECT_LE(most("gather", hosts), kGatherWindowBytes);
  }
}

// Between two hosts the ring already takes two steps.
TEST(AlgorithmChoice, DirectIsForMoreThanTwoHosts) {
  EXPECT_EQ(most("direct", 2), 0);
  EXPECT_EQ(most("gather", 2), kGatherWindowBytes);
  for (int hosts = 3; hosts <= 100; ++hosts) {
    EXPECT_GT(most("gather", hosts), 1024) << hosts;
    EXPECT_GT(most("direct", hosts), most("gather", hosts)) << hosts;
  }
}

TEST(AlgorithmChoice, AReduceScatterTakesDirectAndThenTheRing) {
  const auto make = [](std::int64_t bytes, int hosts) {
    return choose_way(nullptr, &Algorithm::reduce_scatter, base::Bytes(bytes), hosts).make;
  };
  EXPECT_EQ(make(8, 2), &ring_reduce_scatter) << "it is the same";
  for (const int hosts : {3, 4, 5, 8, 100}) {
    const std::int64_t limit = most("direct", hosts);
    EXPECT_EQ(make(8, hosts), &direct_reduce_scatter) << hosts;
    EXPECT_EQ(make(limit, hosts), &direct_reduce_scatter) << hosts;
    EXPECT_EQ(make(limit + 1, hosts), &ring_reduce_scatter) << hosts;
  }
}

TEST(AlgorithmChoice, InWords) {
  EXPECT_EQ(choice_text(nullptr, 2), "gather up to 61440 bytes, the ring above");
  EXPECT_EQ(choice_text(nullptr, 3), "gather up to 7286 bytes, direct up to 30000, the ring above");
  EXPECT_EQ(choice_text(algorithm_of("direct"), 3), "the direct, as RONDE_ALGORITHM=direct asks");
}

// 3 hosts: gather costs 34 us + 16 ns/byte, direct 68 us + 11.33, the ring 88 us + 10.67.
TEST(AlgorithmChoice, IsTheFastestByTheModel) {
  EXPECT_EQ(most("gather", 3), 7'286);
  EXPECT_EQ(most("direct", 3), 30'000);
  // 4 hosts: gather costs 44 us + 24 ns/byte, direct 92 us + 12.75, the ring 132 us + 12.
  EXPECT_EQ(most("gather", 4), 4'267);
  EXPECT_EQ(most("direct", 4), 53'333);
  // 8 hosts: gather costs 66 us + 56 ns/byte, direct 188 us + 14.875.
  EXPECT_EQ(most("gather", 8), 2'967);
  EXPECT_EQ(most("direct", 5), 75'000);
  // With more hosts the limit of direct is one message for each chunk.
  for (int hosts = 6; hosts <= 100; ++hosts) {
    EXPECT_EQ(most("direct", hosts), std::llround(double{kMessageBytes} * hosts / (hosts - 1)))
        << hosts;
  }
}

}  // namespace
}  // namespace ronde::collectives
