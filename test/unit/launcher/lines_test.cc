// SPDX-License-Identifier: Apache-2.0
// Lines of ranks were mixed, even within a line.
#include "launcher/lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ronde::launcher {
namespace {

TEST(LineTagger, TagsWholeLines) {
  LineTagger tagger(12);
  EXPECT_EQ(tagger.take("one\ntwo\nth"), "[12] one\n[12] two\n");
  EXPECT_EQ(tagger.take(""), "");
  EXPECT_EQ(tagger.take("re"), "");
  EXPECT_EQ(tagger.take("e\n\n"), "[12] three\n[12] \n");
  EXPECT_EQ(tagger.finish(), "");
}

TEST(LineTagger, EndsALineThatTheRankDidNot) {
  LineTagger tagger(0);
  EXPECT_EQ(tagger.take("half"), "");
  EXPECT_EQ(tagger.finish(), "[0] half\n");
  EXPECT_EQ(tagger.finish(), "");
}

TEST(LineTagger, KeepsNoEndlessLine) {
  LineTagger tagger(0);
  std::string shown;
  for (int i = 0; i < 100; ++i) shown += tagger.take(std::string(1000, 'x'));
  EXPECT_GT(shown.size(), 64000U);
  shown += tagger.finish();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), 'x'), 100000);
}

// Two starts that fail alike are known by it.
TEST(LastLine, IsTheLastThatSaysSomething) {
  LastLine last;
  EXPECT_EQ(last.text(), "");
  last.take("one\ntw");
  EXPECT_EQ(last.text(), "tw");
  last.take("o\n\n-----\n  ");
  EXPECT_EQ(last.text(), "two");
  last.take("\n" + std::string(5000, 'x') + "\n");
  EXPECT_EQ(last.text(), std::string(1024, 'x'));
}

TEST(LastLine, TheTimeAtItsBeginningIsLeftOut) {
  for (const std::string time : {"12:00:01", "2026-01-31 12:00:01", "2026-01-31T12:00:01.25Z",
                                 "[12:00:01,250]", "[2026/01/31 12:00:01]", ""}) {
    EXPECT_EQ(without_time(time + " it failed"), " it failed");
  }
  for (const std::string line :
       {"1:2:3 a", "[12:00:01 a", "step 7", "2026-01-31", "[", "", "12:00"}) {
    EXPECT_EQ(without_time(line), line);
  }
}

}  // namespace
}  // namespace ronde::launcher
