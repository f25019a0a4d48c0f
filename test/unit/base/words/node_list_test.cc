// SPDX-License-Identifier: Apache-2.0
// Lists as Slurm writes them, and what is none.
#include "base/words/node_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace ronde::base {
namespace {

using testing::ElementsAre;
using testing::Optional;

TEST(NodeList, Names) {
  EXPECT_THAT(read_node_list("node1"), Optional(ElementsAre("node1")));
  EXPECT_THAT(read_node_list("node1,a.b-c_d"), Optional(ElementsAre("node1", "a.b-c_d")));
}

TEST(NodeList, Ranges) {
  EXPECT_THAT(read_node_list("node[07-09,12],login"),
              Optional(ElementsAre("node07", "node08", "node09", "node12", "login")));
  EXPECT_THAT(read_node_list("n[8-11]"), Optional(ElementsAre("n8", "n9", "n10", "n11")));
  EXPECT_THAT(read_node_list("n[098-101]"), Optional(ElementsAre("n098", "n099", "n100", "n101")));
  EXPECT_THAT(read_node_list("node[01-03,07],gpu-[1-2]x"),
              Optional(ElementsAre("node01", "node02", "node03", "node07", "gpu-1x", "gpu-2x")));
  EXPECT_THAT(read_node_list("[1-2]"), Optional(ElementsAre("1", "2")));
}

TEST(NodeList, SeveralBracketsInAName) {
  EXPECT_THAT(read_node_list("r[1-2]n[003,7]-ib,x"),
              Optional(ElementsAre("r1n003-ib", "r1n7-ib", "r2n003-ib", "r2n7-ib", "x")));
}

TEST(NodeList, NoList) {
  for (const std::string bad : {"",      ",a",       "a,",     "a,,b",  "n[",
                                "n[]",   "n[-2]",    "n[a-b]", "n]1",   "n[1-2",
                                "a b",   "n[1,]",    "n[2-1]", "n[1-]", "n[+1-2]",
                                "n[1 ]", "n[1-2-3]", "n[[1]]", "a,n[",  "n[1-99999999999]"}) {
    EXPECT_EQ(read_node_list(bad), std::nullopt) << bad;
  }
}

TEST(NodeList, AMillionAtMost) {
  EXPECT_THAT(read_node_list("n[1-1048576]"), Optional(testing::SizeIs(1048576)));
  for (const std::string bad : {"n[0-1048576]", "n[1-1048576],a", "n[1-2000][1-2000]",
                                "n[0-4294967295]", "n[1-1048576,1]"}) {
    EXPECT_EQ(read_node_list(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace ronde::base
