// SPDX-License-Identifier: Apache-2.0
// Every setting: its default, what it takes, and what it says to what it does not take.
#include "base/config.h"
#include "base/process/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace ronde::base {
namespace {

using testing::Contains;
using testing::HasSubstr;

using Lines = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

Result<Config> read(const Lines& lines) { return Config::from_environment(lines); }

const Setting& setting(std::string_view name) {
  for (const Setting& row : settings()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << "no setting " << name;
  return settings().front();
}

TEST(Config, Defaults) {
  const auto config = read({});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->algorithm, "auto");
  EXPECT_EQ(config->log_level, LogLevel::kWarning);
  EXPECT_EQ(config->batch_bytes, Bytes(64 << 20));
  EXPECT_EQ(config->segment_bytes, Bytes(128 << 10));
  EXPECT_EQ(config->piece_bytes, Bytes(0));
  EXPECT_EQ(config->stores, "auto");
  EXPECT_EQ(config->buffer_bytes, Bytes(std::int64_t{16} << 30));
  EXPECT_EQ(config->plan_capacity, 8192);
  EXPECT_EQ(config->linger, seconds(0));
  EXPECT_EQ(config->spin, std::chrono::microseconds(50));
  EXPECT_EQ(config->start_timeout, seconds(60));
  EXPECT_EQ(config->stall_warning, seconds(30));
  EXPECT_EQ(config->stall_failure, seconds(1800));
  EXPECT_EQ(config->link_timeout, seconds(60));
  EXPECT_EQ(config->shutdown_timeout, seconds(30));
  EXPECT_EQ(config->unwind_grace, seconds(2));
  EXPECT_EQ(config->mpi, "auto");
  EXPECT_EQ(config->transport, "auto");
  EXPECT_EQ(config->transport_path, "");
  EXPECT_EQ(config->interfaces, "");
  EXPECT_EQ(config->plugin_path, "");
  EXPECT_EQ(config->ports.size(), 0);
  EXPECT_EQ(config->check, "off");
}

TEST(Config, EverySettingReachesItsField) {
  const auto config = read({"RONDE_ALGORITHM=ring",
                            "RONDE_LOG_LEVEL=debug",
                            "RONDE_BATCH_BYTES=1000",
                            "RONDE_SEGMENT_BYTES=4096",
                            "RONDE_PIECE_BYTES=8200",
                            "RONDE_STORES=streaming",
                            "RONDE_BUFFER_BYTES=123456",
                            "RONDE_PLAN_CAPACITY=3",
                            "RONDE_LINES_AFTER=5",
                            "RONDE_LINGER_SECONDS=0.5",
                            "RONDE_SPIN_SECONDS=0.002",
                            "RONDE_START_TIMEOUT_SECONDS=5",
                            "RONDE_STALL_WARNING_SECONDS=6",
                            "RONDE_STALL_FAILURE_SECONDS=7",
                            "RONDE_DEADLOCK_GRACE_SECONDS=1.5",
                            "RONDE_LINK_TIMEOUT_SECONDS=15",
                            "RONDE_TIMELINE=/tmp/my trace.json",
                            "RONDE_SHUTDOWN_TIMEOUT_SECONDS=8",
                            "RONDE_UNWIND_GRACE_SECONDS=9",
                            "RONDE_MPI=off",
                            "RONDE_TRANSPORT=ucx",
                            "RONDE_TRANSPORT_PATH=/opt/my transports",
                            "RONDE_INTERFACE=eth0, fd00::/8",
                            "RONDE_PLUGIN_PATH=/opt/my plugins",
                            "RONDE_PORTS=29600-65535",
                            "RONDE_CHECK=memory"});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->algorithm, "ring");
  EXPECT_EQ(config->check, "memory");
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
  EXPECT_EQ(config->batch_bytes, Bytes(1000));
  EXPECT_EQ(config->segment_bytes, Bytes(4096));
  EXPECT_EQ(config->piece_bytes, Bytes(8256));  // whole lines
  EXPECT_EQ(config->stores, "streaming");
  EXPECT_EQ(config->buffer_bytes, Bytes(123456));
  EXPECT_EQ(config->plan_capacity, 3);
  EXPECT_EQ(config->lines_after, 5);
  EXPECT_EQ(config->linger, milliseconds(500));
  EXPECT_EQ(config->spin, milliseconds(2));
  EXPECT_EQ(config->start_timeout, seconds(5));
  EXPECT_EQ(config->stall_warning, seconds(6));
  EXPECT_EQ(config->stall_failure, seconds(7));
  EXPECT_EQ(config->deadlock_grace, milliseconds(1500));
  EXPECT_EQ(config->link_timeout, seconds(15));
  EXPECT_EQ(config->timeline, "/tmp/my trace.json");
  EXPECT_EQ(config->shutdown_timeout, seconds(8));
  EXPECT_EQ(config->transport, "ucx");
  EXPECT_EQ(config->transport_path, "/opt/my transports");
  EXPECT_EQ(config->unwind_grace, seconds(9));
  EXPECT_EQ(config->mpi, "off");
  EXPECT_EQ(config->interfaces, "eth0, fd00::/8");
  EXPECT_EQ(config->plugin_path, "/opt/my plugins");
  EXPECT_EQ(config->ports.first, 29600);
  EXPECT_EQ(config->ports.last, 65535);
}

TEST(Config, EveryRowOfTheTableIsSound) {
  std::set<std::string_view> names;
  for (const Setting& row : settings()) {
    EXPECT_EQ(row.name.rfind("RONDE_", 0), 0U) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_EQ(row.help.find('\n'), std::string_view::npos) << row.name;
    EXPECT_EQ(row.kind() == SettingKind::kChoice, !row.choices.empty()) << row.name;
    for (const Setting& other : settings()) {
      EXPECT_EQ(row.place == other.place, row.name == other.name) << row.name << other.name;
    }
    // What is compared between ranks is one line per setting.
    EXPECT_FALSE(row.kind() == SettingKind::kText && row.same_on_all_ranks) << row.name;
    // The default of a row, said aloud, is what one gets in silence.
    const auto said = read({std::string(row.name) + "=" + std::string(row.default_value)});
    ASSERT_TRUE(said.ok()) << said.status().to_string();
    EXPECT_EQ(said->shared_text(), read({})->shared_text()) << row.name;
  }
}

// A value just outside, and text that is no value at all, for every row.
TEST(Config, BadValuesNameTheSettingTheValueAndWhatIsValid) {
  for (const Setting& row : settings()) {
    if (row.kind() == SettingKind::kText) continue;  // whoever uses it judges it
    Lines bad{" ",  "nonsense", "-1",  "1x",  "0x10",  " 1",
              "1 ", "+1",       "nan", "inf", "1e400", "99999999999999999999"};
    if (row.kind() != SettingKind::kChoice) bad.push_back(std::to_string(row.maximum * 2));
    if (row.kind() == SettingKind::kInteger) {
      bad.insert(bad.end(), {"1.5", "1e3", std::to_string(static_cast<long long>(row.maximum) + 1),
                             std::to_string(static_cast<long long>(row.minimum) - 1)});
    }
    if (row.kind() == SettingKind::kPorts) {
      bad.insert(bad.end(), {"29600", "2-1", "0-9", "1-65536", "1-", "-", "1--2", "1 - 2",
                             "1-2,4-5", "1-2-3"});
    }
    if (row.kind() == SettingKind::kChoice)
      bad.insert(bad.end(), {std::string(row.choices), "AUTO"});
    for (const std::string& value : bad) {
      const auto config = read({std::string(row.name) + "=" + value});
      ASSERT_FALSE(config.ok()) << row.name << "=" << value;
      EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
      EXPECT_EQ(config.status().message(),
                std::string(row.name) + "=" + value + " is not valid: use " + valid_values(row));
    }
  }
}

TEST(Config, BothEndsOfARangeAreValid) {
  for (const Setting& row : settings()) {
    if (row.kind() != SettingKind::kInteger) continue;
    for (const double end : {row.minimum, row.maximum}) {
      const std::string value = std::to_string(static_cast<long long>(end));
      EXPECT_TRUE(read({std::string(row.name) + "=" + value}).ok()) << row.name << "=" << value;
    }
  }
  EXPECT_TRUE(read({"RONDE_LINGER_SECONDS=1"}).ok());
  EXPECT_FALSE(read({"RONDE_LINGER_SECONDS=1.0000001"}).ok());
  EXPECT_TRUE(read({"RONDE_START_TIMEOUT_SECONDS=0.001"}).ok());
  EXPECT_FALSE(read({"RONDE_START_TIMEOUT_SECONDS=0.0009"}).ok());
  EXPECT_TRUE(read({"RONDE_START_TIMEOUT_SECONDS=1e2"}).ok());
}

TEST(Config, EveryChoiceIsTaken) {
  const Lines levels{"trace", "debug", "info", "warning", "error", "off"};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const auto config = read({"RONDE_LOG_LEVEL=" + levels[i]});
    ASSERT_TRUE(config.ok());
    EXPECT_EQ(config->log_level, static_cast<LogLevel>(i));
  }
  for (const char* const algorithm : {"auto", "ring", "direct", "gather"}) {
    EXPECT_EQ(read({std::string("RONDE_ALGORITHM=") + algorithm})->algorithm, algorithm);
  }
}

TEST(Config, ValidValuesInWords) {
  EXPECT_EQ(valid_values(setting("RONDE_STORES")), "one of: auto temporal streaming");
  EXPECT_EQ(valid_values(setting("RONDE_BATCH_BYTES")), "a whole number from 1 to 68719476736");
  EXPECT_EQ(valid_values(setting("RONDE_STALL_WARNING_SECONDS")), "seconds from 0.001 to 86400");
}

TEST(Config, ALinkTimeoutThatTheKernelCannotKeepIsRefused) {
  EXPECT_EQ(read({"RONDE_LINK_TIMEOUT_SECONDS=1.5"}).status().message(),
            "RONDE_LINK_TIMEOUT_SECONDS=1.5 is not valid: use seconds from 2 to 86400");
  EXPECT_FALSE(read({"RONDE_LINK_TIMEOUT_SECONDS=86401"}).ok());
  EXPECT_EQ(read({"RONDE_LINK_TIMEOUT_SECONDS=2.5"})->link_timeout, milliseconds(2500));
}

TEST(Config, SegmentsAreWholeLines) {
  EXPECT_EQ(read({"RONDE_SEGMENT_BYTES=64"})->segment_bytes, Bytes(64));
  EXPECT_EQ(read({"RONDE_SEGMENT_BYTES=65"})->segment_bytes, Bytes(128));
}

TEST(Config, UnknownNamesAreReported) {
  Lines unknown;
  const Lines lines{"RONDE_ALGORITM=ring", "PATH=/bin",
                    "RONDE_ZZZ=1",         "RONDE_ALGORITHM=ring",
                    "XRONDE_A=1",          "ronde_b=1",
                    "RONDE_NO_EQUALS",     "RONDE_RESTART_ATTEMPT=1",  // ronderun's own, both
                    "RONDE_RESTART_JOB=a"};
  const auto config = Config::from_environment(lines, &unknown);
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(unknown, testing::ElementsAre("RONDE_ALGORITM", "RONDE_ZZZ"));
  EXPECT_TRUE(Config::from_environment(lines).ok()) << "nobody has to ask";
}

TEST(Config, AFailureBeforeItsWarningIsRefused) {
  const auto config = read({"RONDE_STALL_WARNING_SECONDS=10", "RONDE_STALL_FAILURE_SECONDS=9"});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), HasSubstr("RONDE_STALL_FAILURE_SECONDS=9 is smaller than "
                                                   "RONDE_STALL_WARNING_SECONDS=10"));
  EXPECT_TRUE(read({"RONDE_STALL_WARNING_SECONDS=10", "RONDE_STALL_FAILURE_SECONDS=10"}).ok());
}

TEST(Config, ADefaultFollowsWhatWasSet) {
  const auto short_failure = read({"RONDE_STALL_FAILURE_SECONDS=15"});
  ASSERT_TRUE(short_failure.ok()) << short_failure.status().to_string();
  EXPECT_EQ(short_failure->stall_warning, seconds(15));
  const auto long_warning = read({"RONDE_STALL_WARNING_SECONDS=3600"});
  ASSERT_TRUE(long_warning.ok()) << long_warning.status().to_string();
  EXPECT_EQ(long_warning->stall_failure, seconds(3600));
  EXPECT_EQ(read({"RONDE_STALL_FAILURE_SECONDS=60"})->stall_warning, seconds(30));
}

TEST(Config, AnEmptyVariableIsNotSet) {
  for (const Setting& row : settings()) {
    std::vector<std::string> unknown;
    const auto config = Config::from_environment(Lines{std::string(row.name) + "="}, &unknown);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_EQ(config->shared_text(), read({})->shared_text()) << row.name;
    EXPECT_THAT(unknown, testing::IsEmpty());
  }
}

TEST(Config, SharedTextHasWhatAllRanksMustShareAndNothingElse) {
  const std::string text = read({"RONDE_PLAN_CAPACITY=7", "RONDE_SPIN_SECONDS=1"})->shared_text();
  for (const Setting& row : settings()) {
    const std::string begin = std::string(row.name) + "=";
    EXPECT_EQ(text.find(begin) != std::string::npos, row.same_on_all_ranks) << row.name;
  }
  EXPECT_THAT(text, HasSubstr("RONDE_PLAN_CAPACITY=7\n"));
  EXPECT_NE(text, read({})->shared_text());
  EXPECT_NE(read({"RONDE_CHECK=finite"})->shared_text(), read({})->shared_text())
      << "one rank alone would leave the others in another way of prepared operations";
  EXPECT_EQ(read({"RONDE_SPIN_SECONDS=1"})->shared_text(), read({})->shared_text());
}

TEST(Config, TheEnvironmentOfThisProcess) {
  ASSERT_EQ(setenv("RONDE_TEST_OF_CONFIG", "a=b", 1), 0);
  EXPECT_THAT(process_environment(), Contains("RONDE_TEST_OF_CONFIG=a=b"));
  ASSERT_EQ(unsetenv("RONDE_TEST_OF_CONFIG"), 0);
  EXPECT_THAT(process_environment(), testing::Not(Contains(HasSubstr("RONDE_TEST_OF_CONFIG"))));
}

}  // namespace
}  // namespace ronde::base
