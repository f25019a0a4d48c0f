// SPDX-License-Identifier: Apache-2.0
// O5: lines of ranks were mixed, even within a line.
#include "launcher/line_tagger.h"

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

}  // namespace
}  // namespace ronde::launcher
