// SPDX-License-Identifier: Apache-2.0
// Event files byte by byte, against what TensorBoard's own writer makes; the metric log, also after
// runs that ended badly; and what both say where they cannot write.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/trainer/keep/event.pb.h"
#include "bindings/trainer/keep/logs.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/data/data_files.h"
#include "test/unit/trainer/full_disk.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename Write>
std::string error_of_writing(Write&& write) {
  try {
    write();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class InAFolder : public DataFiles {
 protected:
  static std::string text_of(const std::string& path) {
    const Bytes bytes = read_raw(path);
    return {bytes.begin(), bytes.end()};
  }
  static void write_text(const std::string& path, const std::string& text) {
    write_raw(path, Bytes(text.begin(), text.end()));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST(Crc32c, KnownAnswers) {  // of RFC 3720, and the masked ones of TensorBoard's own writer
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8U);
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5U);
  EXPECT_EQ(masked_crc32c(std::string(32, '\0')), 0x0fd7fffaU);
}

// ---- event files ----

std::uint64_t little_endian(const std::string& text, std::size_t at, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes; i-- > 0;) {
    number = number << 8U | static_cast<std::uint8_t>(text.at(at + i));
  }
  return number;
}

// The messages of a file, whose lengths and checksums are right.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t length = little_endian(file, at, 8);
    EXPECT_EQ(little_endian(file, at + 8, 4), masked_crc32c(file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(little_endian(file, at + 12 + length, 4), masked_crc32c(records.back()));
    at += length + 16;
  }
  return records;
}

// Without the time at which it was written: the first field, of 9 bytes.
std::string timeless(const std::string& record) {
  EXPECT_EQ(record.at(0), '\x09');
  double seconds = 0.0;
  std::memcpy(&seconds, record.data() + 1, sizeof seconds);
  EXPECT_NEAR(seconds, seconds_since_1970(), 60.0);
  return record.substr(9);
}

class Events : public InAFolder {
 protected:
  // The messages but the first two.
  static std::vector<proto::Event> events_of(const EventWriter& writer) {
    const std::vector<std::string> records = records_of(text_of(writer.path()));
    EXPECT_GE(records.size(), 2U);
    std::vector<proto::Event> events(records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      EXPECT_TRUE(events[i].ParseFromString(records[i]));
    }
    events.erase(events.begin(), events.begin() + 2);
    return events;
  }
};

TEST_F(Events, AFileBeginsWithItsVersionAndTheStepFromWhichItHolds) {
  const EventWriter writer(folder_ + "/made/here", 100);
  EXPECT_THAT(writer.path(), StartsWith(folder_ + "/made/here/events.out.tfevents."));
  const std::vector<std::string> records = records_of(text_of(writer.path()));
  ASSERT_THAT(records, SizeIs(2));
  EXPECT_EQ(timeless(records[0]),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(timeless(records[1]), "\x10\x64\x3a\x02\x08\x01");
}

TEST_F(Events, TheBytesAreThoseOfTensorBoardsWriter) {
  EventWriter writer(folder_, 0);
  writer.scalar("loss", 7, 0.5);
  writer.text("t/flags", 7, "**x**");
  writer.flush();
  const std::vector<std::string> records = records_of(text_of(writer.path()));
  ASSERT_THAT(records, SizeIs(4));
  using namespace std::string_literals;
  EXPECT_EQ(timeless(records[2]), "\x10\x07\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"s);
  EXPECT_EQ(timeless(records[3]),
            "\x10\x07\x2a\x22\x0a\x20\x0a\x07t/flags\x42\x0b\x08\x07\x12\0\x42\x05**x**"
            "\x4a\x08\x0a\x06\x0a\x04text"s);
}

TEST_F(Events, EveryNumberIsWrittenWhateverItIs) {
  EventWriter writer(folder_, 0);
  const std::vector<double> values = {0.0, -1.25, 1e300, -kInfinity, std::nan("")};
  for (std::size_t i = 0; i < values.size(); ++i) writer.scalar("a tag", i, values[i]);
  writer.scalar("a tag", UINT64_MAX, 1.0);
  writer.flush();
  const std::vector<proto::Event> events = events_of(writer);
  ASSERT_THAT(events, SizeIs(values.size() + 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(events[i].step(), static_cast<std::int64_t>(i));
    const proto::Summary::Value& value = events[i].summary().value(0);
    EXPECT_EQ(value.tag(), "a tag");
    EXPECT_TRUE(value.has_simple_value()) << i;
    const auto expected = static_cast<float>(values[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value.simple_value()));
    } else {
      EXPECT_EQ(value.simple_value(), expected);
    }
  }
  EXPECT_EQ(events.back().step(), INT64_MAX);
}

TEST_F(Events, ALongTextIsWhole) {
  EventWriter writer(folder_, 0);
  const std::string text(100'000, '|');
  writer.text("flags", 3, text);
  writer.flush();
  const std::vector<proto::Event> events = events_of(writer);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].summary().value(0).tensor().string_val(0), text);
}

TEST_F(Events, EveryRunHasAFileThatIsReadAfterThoseBeforeIt) {
  std::vector<std::string> expected;
  for (int run = 0; run < 12; ++run) {
    EventWriter writer(folder_, 0);
    writer.scalar("run", 0, run);
    expected.push_back(std::filesystem::path(writer.path()).filename().string());
  }
  EXPECT_EQ(names(), expected);
  // Neither a clock that was ahead nor names of others mislead it.
  write_text(folder_ + "/events.out.tfevents.4000000000.elsewhere.1.ronde", "");
  write_text(folder_ + "/events.out.tfevents.99999999999999999999.x", "");
  write_text(folder_ + "/events.out.tfevents.", "");
  write_text(folder_ + "/metrics.jsonl", "");
  EXPECT_THAT(EventWriter(folder_, 0).path(), HasSubstr("/events.out.tfevents.4000000001."));
}

TEST_F(Events, AFolderThatCannotBeWrittenIsNamedWithTheReason) {
  const std::string file = write("file", {});
  EXPECT_THAT(error_of_writing([&] { EventWriter(file, 0); }),
              StartsWith(file + ": no event file"));
  EXPECT_THAT(error_of_writing([&] { EventWriter(file + "/logs", 0); }),
              AllOf(StartsWith(file + "/logs: no event file"), HasSubstr(": Not a directory)")));
  EXPECT_THAT(error_of_writing([] { EventWriter("/proc/self", 0); }),
              StartsWith("/proc/self: no event"));
  const FullDisk full(20);
  EXPECT_THAT(error_of_writing([&] { EventWriter(folder_, 0); }),
              HasSubstr(": No space left on device)"));
}

TEST_F(Events, WhatAFullDiskRefusesIsDroppedAndWhatFollowsIsWritten) {
  EventWriter writer(folder_, 0);
  writer.scalar("loss", 1, 1.0);
  writer.flush();
  EXPECT_FALSE(writer.failed());
  const std::string before = text_of(writer.path());
  // There is room for half of a record, which a reader would take for the end of the file.
  for (const rlim_t room : {10U, 0U}) {
    const FullDisk full(before.size() + room);
    writer.scalar("loss", 2, 2.0);
    writer.flush();
    EXPECT_TRUE(writer.failed());
    EXPECT_EQ(text_of(writer.path()), before);
  }
  writer.scalar("loss", 3, 3.0);
  writer.flush();
  EXPECT_FALSE(writer.failed());
  const std::vector<proto::Event> events = events_of(writer);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].step(), 1);
  EXPECT_EQ(events[1].step(), 3);
}

// ---- the metric log ----

class Log : public InAFolder {
 protected:
  static std::string line(int step) { return "{\"step\":" + std::to_string(step) + ",\"x\":1}\n"; }
  // What is left of these lines in a log that is opened.
  std::string left_of(const std::string& lines, std::uint64_t first_step) const {
    write_text(file_, lines);
    const MetricLog log(file_, first_step);
    EXPECT_FALSE(log.failed());
    return text_of(file_);
  }
  ino_t inode() const {
    struct stat status {};
    EXPECT_EQ(stat(file_.c_str(), &status), 0);
    return status.st_ino;
  }

  std::string file_ = folder_ + "/metrics.jsonl";
};

TEST_F(Log, ALineIsThereAtOnceAndNumbersThatJsonLacksAreNull) {
  const std::string file = folder_ + "/made/here/metrics.jsonl";
  MetricLog log(file, 0);
  log.write(20, {{"loss", 0.1}, {"rate", std::nan("")}, {"share", -kInfinity}, {"step", 5.0}});
  const std::string text = text_of(file);
  EXPECT_THAT(text, AllOf(StartsWith("{\"step\":20,\"seconds\":"), testing::EndsWith("}\n")));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["step"], 20);
  EXPECT_NEAR(json["seconds"].get<double>(), seconds_since_1970(), 60.0);
  EXPECT_EQ(json["loss"].get<double>(), 0.1);
  EXPECT_TRUE(json["rate"].is_null());
  EXPECT_TRUE(json["share"].is_null());
  EXPECT_THAT(json, SizeIs(5));
}

TEST_F(Log, AResumedLogHasNoStepTwice) {
  for (const std::uint64_t first_step : {0U, 25U, 30U, 31U, 1000U}) {
    std::filesystem::remove(file_);
    {
      MetricLog log(file_, 0);
      for (std::uint64_t step = 10; step <= 50; step += 10) log.write(step, {{"run", 1}});
    }
    std::vector<std::uint64_t> expected;
    for (std::uint64_t step = 10; step <= 50; step += 10) {
      if (step < first_step) expected.push_back(step);
    }
    MetricLog log(file_, first_step);
    log.write(first_step, {{"run", 2}});
    expected.push_back(first_step);
    std::vector<std::uint64_t> steps;
    std::ifstream lines(file_);
    for (std::string line; std::getline(lines, line);) {
      steps.push_back(nlohmann::json::parse(line)["step"]);
    }
    EXPECT_EQ(steps, expected) << first_step;
    EXPECT_THAT(names(), testing::ElementsAre("metrics.jsonl"));
  }
}

TEST_F(Log, EveryTruncationLeavesTheWholeLinesAsTheyWere) {
  const std::string whole = line(1) + line(22) + line(3);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const std::string part = whole.substr(0, size);
    EXPECT_EQ(left_of(part, 100), part.substr(0, part.rfind('\n') + 1)) << size;
  }
}

TEST_F(Log, LinesOfOthersStay) {
  const std::string ours = "{ \"x\" : [1, {}],\t\"step\": 2}\n";  // as somebody else may write it
  for (const char* foreign : {"", "7", "nonsense", R"({"x":1})", R"({"step":-1})",
                              R"({"step":"1"})", R"({"step":1}{"step":1})"}) {
    const std::string kept = std::string(foreign) + "\n" + ours;
    EXPECT_EQ(left_of(kept + line(3), 3), kept) << foreign;
  }
}

TEST_F(Log, ATrainingThatBeginsAnewLeavesTheOldLinesInAFileOfTheirOwn) {
  write_text(file_, line(1) + line(2));
  MetricLog log(file_, 1, true);
  log.write(1, {});
  EXPECT_THAT(text_of(file_), StartsWith("{\"step\":1,\"seconds\":"));
  const std::vector<std::string> all = names();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_THAT(all[0], testing::MatchesRegex("metrics\\.[0-9]+\\.jsonl"));
  EXPECT_EQ(text_of(folder_ + '/' + all[0]), line(1) + line(2));
  std::filesystem::remove(file_);
  const MetricLog first(file_, 1, true);
  EXPECT_FALSE(first.failed()) << "there need not be an old one";
}

TEST_F(Log, AFileOfWhichNothingIsRemovedIsNotWrittenAnew) {
  write_text(file_, line(1) + line(2));
  const ino_t before = inode();
  { const MetricLog log(file_, 3); }
  EXPECT_EQ(inode(), before);
  { const MetricLog log(file_, 2); }
  EXPECT_NE(inode(), before);
  EXPECT_EQ(text_of(file_), line(1));
}

TEST_F(Log, AFileThatCannotBeWrittenIsNamedWithTheReason) {
  const std::string below = write("file", {}) + "/metrics.jsonl";
  EXPECT_THAT(error_of_writing([&] { MetricLog(below, 0); }),
              StartsWith(below + ": Not a directory: make it"));
  EXPECT_THAT(error_of_writing([&] { MetricLog(folder_, 0); }),
              StartsWith(folder_ + ": Is a directory: make it"));
  EXPECT_THAT(error_of_writing([] { MetricLog("/proc/self/metrics.jsonl", 0); }),
              StartsWith("/proc/self/metrics.jsonl: "));
}

TEST_F(Log, OnAFullDiskTheOldLinesStay) {
  write_text(file_, line(1) + line(2));
  const FullDisk full(10);
  EXPECT_THAT(error_of_writing([&] { MetricLog(file_, 2); }), HasSubstr(": File too large: "));
  EXPECT_EQ(text_of(file_), line(1) + line(2));
}

TEST_F(Log, AfterAMomentOfAFullDiskLinesComeAgainAndNoneIsTorn) {
  MetricLog log(file_, 0);
  log.write(1, {});
  const std::string before = text_of(file_);
  {
    const FullDisk full(before.size() + 5);
    log.write(2, {});
    EXPECT_TRUE(log.failed());
  }
  EXPECT_EQ(text_of(file_), before);
  log.write(3, {});
  EXPECT_FALSE(log.failed());
  const std::string after = text_of(file_);
  EXPECT_THAT(after, StartsWith(before));
  EXPECT_EQ(nlohmann::json::parse(after.substr(before.size()))["step"], 3);
}

TEST_F(Log, TheLastStepIsThatOfItsLastWholeLine) {
  EXPECT_FALSE(MetricLog::last_step(file_));
  write_text(file_, "");
  EXPECT_FALSE(MetricLog::last_step(file_));
  write_text(file_, line(4) + line(12) + "a note\n" + line(13).substr(0, 8));
  EXPECT_EQ(MetricLog::last_step(file_), 12U);
}

}  // namespace
}  // namespace ronde::trainer
