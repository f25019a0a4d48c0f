// SPDX-License-Identifier: Apache-2.0
// Percentiles, medians and the ratios of pairs.
#include "examples/perf/measure/statistics.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::perf {
namespace {

TEST(Percentile, IsTheNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(percentile(values, 0.5), 50);
  EXPECT_EQ(percentile(values, 0.99), 99);
  EXPECT_EQ(percentile(values, 1.0), 100);
  EXPECT_EQ(percentile({7}, 0.99), 7);
  EXPECT_EQ(percentile({2, 1}, 0.5), 1);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

TEST(Median, IsBetweenTheMiddleTwo) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
}

TEST(AddTimes, TakesBandwidthsFromTheMiddle) {
  Sample sample;
  sample.key.bytes = 4000;
  add_times(sample, {1, 2, 3, 4, 90}, 1.5);
  EXPECT_EQ(sample.iterations, 5U);
  EXPECT_EQ(sample.min_us, 1);
  EXPECT_EQ(sample.p50_us, 3);
  EXPECT_EQ(sample.p99_us, 90);
  EXPECT_EQ(sample.mean_us, 20);
  EXPECT_DOUBLE_EQ(sample.algbw, 4000 / 3e3);
  EXPECT_DOUBLE_EQ(sample.busbw, 1.5 * 4000 / 3e3);
}

Sample sample_of(const std::string& contender, std::uint64_t repetition, double us,
                 std::uint64_t bytes = 8) {
  Sample sample;
  sample.key.bytes = bytes;
  sample.contender = contender;
  sample.repetition = repetition;
  add_times(sample, {us}, 1.0);
  return sample;
}

TEST(Summarize, ComparesWithinARepetition) {
  // Times drift by ten between the repetitions, as when the machine changes its mood; the ratio of
  // the two contenders does not.
  const std::vector<Sample> samples{sample_of("ronde", 0, 1),    sample_of("mpi", 0, 2),
                                    sample_of("mpi", 1, 21),     sample_of("ronde", 1, 10),
                                    sample_of("ronde", 2, 100),  sample_of("mpi", 2, 190),
                                    sample_of("ronde", 0, 5, 16)};
  const std::vector<Summary> summaries = summarize(samples);
  ASSERT_EQ(summaries.size(), 3U);
  EXPECT_EQ(summaries[0].contender, "ronde");
  EXPECT_EQ(summaries[0].ratio, 1.0);
  EXPECT_EQ(summaries[1].contender, "mpi");
  EXPECT_EQ(summaries[1].median_us, 21);
  EXPECT_EQ(summaries[1].min_us, 2);
  EXPECT_EQ(summaries[1].max_us, 190);
  EXPECT_DOUBLE_EQ(summaries[1].ratio, 2.0);
  EXPECT_DOUBLE_EQ(summaries[1].ratio_min, 1.9);
  EXPECT_DOUBLE_EQ(summaries[1].ratio_max, 2.1);
  EXPECT_EQ(summaries[2].key.bytes, 16U) << "another size is another row";
}

TEST(Summarize, AddsUpWrongElements) {
  std::vector<Sample> samples{sample_of("ronde", 0, 1), sample_of("ronde", 1, 1)};
  samples[0].wrong = 3;
  samples[1].wrong = 4;
  EXPECT_EQ(summarize(samples)[0].wrong, 7U);
}

TEST(Unsteady, WhenTheRoundTripChangedByMoreThanHalf) {
  std::vector<Sample> samples{sample_of("ronde", 0, 1), sample_of("ronde", 1, 1)};
  EXPECT_FALSE(unsteady(summarize(samples)[0])) << "nothing was measured";
  samples[0].c2c_before_ns = 60;
  samples[0].c2c_after_ns = 61;
  samples[1].c2c_before_ns = 80;
  EXPECT_FALSE(unsteady(summarize(samples)[0]));
  samples[1].c2c_after_ns = 390;
  EXPECT_TRUE(unsteady(summarize(samples)[0]));
}

}  // namespace
}  // namespace ronde::perf
