// SPDX-License-Identifier: Apache-2.0
#include "base/job_shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace ronde::base {
namespace {

JobShape shape_of(const std::vector<std::int32_t>& leaders) {
  auto shape = JobShape::of_leaders(leaders);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  return std::move(shape).value();
}

std::vector<std::int32_t> ranks_of(const JobShape& shape, std::int32_t host) {
  const auto ranks = shape.ranks_of(host);
  return {ranks.begin(), ranks.end()};
}

TEST(JobShape, OneHost) {
  const JobShape shape = JobShape::one_host(3);
  EXPECT_EQ(shape.hosts(), 1);
  EXPECT_EQ(shape.ranks(), 3);
  EXPECT_EQ(shape.slices(), 3);
  EXPECT_EQ(ranks_of(shape, 0), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(shape.text(), "1 host x 3 ranks");
}

TEST(JobShape, HostsFollowTheirLowestRank) {
  // --map-by node places 3 + 2 ranks in this way.
  const JobShape shape = shape_of({0, 1, 0, 1, 0});
  EXPECT_EQ(shape.hosts(), 2);
  EXPECT_EQ(ranks_of(shape, 0), (std::vector<std::int32_t>{0, 2, 4}));
  EXPECT_EQ(ranks_of(shape, 1), (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(shape.leader_of(1), 1);
  EXPECT_EQ(shape.host_of(4), 0);
  EXPECT_EQ(shape.position_of(4), 2);
  EXPECT_EQ(shape.position_of(3), 1);
  EXPECT_EQ(shape.slices(), 2);
  EXPECT_EQ(shape.text(), "hosts of 3 + 2 ranks");
}

TEST(JobShape, EvenHosts) {
  EXPECT_EQ(shape_of({0, 0, 2, 2}).text(), "2 hosts x 2 ranks");
  EXPECT_EQ(shape_of({0, 1, 2, 3}).text(), "4 hosts x 1 rank");
}

TEST(JobShape, WhatDoesNotFitIsRefused) {
  for (const std::vector<std::int32_t>& leaders :
       std::vector<std::vector<std::int32_t>>{{}, {1}, {1, 1}, {0, 0, 1}, {0, 2, 2}, {-1}}) {
    EXPECT_FALSE(JobShape::of_leaders(leaders).ok());
  }
  EXPECT_EQ(JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 1}).status().message(),
            "rank 2 reports that rank 1 is the first of its host, which that rank does not");
}

}  // namespace
}  // namespace ronde::base
