// SPDX-License-Identifier: Apache-2.0
// One line per event: what is printed, what is not, and how it looks.
#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::base {
namespace {

using testing::ElementsAre;

struct LogLines {
  Log::Sink sink() {
    return [this](std::string_view line) { lines.emplace_back(line); };
  }
  std::vector<std::string> lines;
};

TEST(Log, ALineNamesTheRankAndTheLevel) {
  LogLines lines;
  const Log log(LogLevel::kTrace, 3, lines.sink());
  log.log(LogLevel::kTrace, "a");
  log.debug("b");
  log.info("c");
  log.warning("d");
  log.error("e");
  EXPECT_THAT(lines.lines, ElementsAre("ronde[rank 3] trace: a\n", "ronde[rank 3] debug: b\n",
                                       "ronde[rank 3] info: c\n", "ronde[rank 3] warning: d\n",
                                       "ronde[rank 3] error: e\n"));
}

TEST(Log, BeforeARankIsKnown) {
  LogLines lines;
  const Log log(LogLevel::kInfo, -1, lines.sink());
  log.info("hello");
  EXPECT_THAT(lines.lines, ElementsAre("ronde info: hello\n"));
}

TEST(Log, OnlyWhatTheLevelWants) {
  for (std::int32_t level = 0; level <= static_cast<std::int32_t>(LogLevel::kOff); ++level) {
    LogLines lines;
    const Log log(static_cast<LogLevel>(level), 0, lines.sink());
    for (std::int32_t of = 0; of <= static_cast<std::int32_t>(LogLevel::kOff); ++of) {
      log.log(static_cast<LogLevel>(of), "x");
      EXPECT_EQ(log.wants(static_cast<LogLevel>(of)), of >= level);
    }
    // Nothing is ever logged at the level "off".
    EXPECT_EQ(std::ssize(lines.lines), static_cast<std::int32_t>(LogLevel::kOff) - level);
  }
}

TEST(Log, TheDefaultIsWarningsOnStandardError) {
  const Log log;
  testing::internal::CaptureStderr();
  log.info("quiet");
  log.warning("loud");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ronde warning: loud\n");
}

TEST(Log, TheNamesAreTheLevels) {
  EXPECT_EQ(kLogLevelNames[static_cast<std::size_t>(LogLevel::kTrace)], "trace");
  EXPECT_EQ(kLogLevelNames[static_cast<std::size_t>(LogLevel::kWarning)], "warning");
  EXPECT_EQ(kLogLevelNames[static_cast<std::size_t>(LogLevel::kOff)], "off");
}

}  // namespace
}  // namespace ronde::base
