// SPDX-License-Identifier: Apache-2.0
// The file that several writers share: whole after each write, and after what a killed one left.
#include "runtime/timeline/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ronde::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kFirst = R"({"job":"1"})";

class TraceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/trace_file_test." + std::to_string(::getpid());
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  [[nodiscard]] std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }
  [[nodiscard]] nlohmann::json parsed() const { return nlohmann::json::parse(text()); }
  void spoil(const std::string& end) const { std::ofstream(path_, std::ios::app) << end; }

  std::string path_;
};

std::string line(int number) { return "{\"n\":" + std::to_string(number) + "}\n"; }

TEST_F(TraceFiles, IsWholeAfterEachWriteOfSeveralWriters) {
  auto one = TraceFile::open(path_, kFirst);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_THAT(parsed(), SizeIs(1));
  auto other = TraceFile::open(path_, kFirst);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(one->append(line(1) + line(2)).ok());
  EXPECT_THAT(parsed(), SizeIs(3));
  ASSERT_TRUE(other->append(line(3)).ok());
  ASSERT_TRUE(one->append(line(4)).ok());
  ASSERT_TRUE(one->append("").ok());
  EXPECT_EQ(parsed(), nlohmann::json::parse(R"([{"job":"1"},{"n":1},{"n":2},{"n":3},{"n":4}])"));
}

TEST_F(TraceFiles, ManyLinesOfManyThreadsAreAllThere) {
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      auto file = TraceFile::open(path_, kFirst);
      ASSERT_TRUE(file.ok());
      for (int i = 0; i < kLines; i += 100) {
        std::string lines;
        for (int j = 0; j < 100; ++j) lines += line(thread * kLines + i + j);
        ASSERT_TRUE(file->append(lines).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(parsed(), SizeIs(1 + kThreads * kLines));
}

TEST_F(TraceFiles, ALineThatIsLongerThanAWriteIsWhole) {
  auto file = TraceFile::open(path_, kFirst);
  ASSERT_TRUE(file.ok());
  const std::string name(9000, 'x');
  ASSERT_TRUE(file->append(line(1) + "{\"name\":\"" + name + "\"}\n" + line(2)).ok());
  const auto all = parsed();
  ASSERT_THAT(all, SizeIs(4));
  EXPECT_EQ(all[2]["name"], name);
}

TEST_F(TraceFiles, WhatAKilledWriterLeftIsCutOffByTheNext) {
  for (const std::string torn : {"", ",", ",\n", ",\n{\"n\":", ",\n{\"n\":7}"}) {
    std::filesystem::remove(path_);
    auto file = TraceFile::open(path_, kFirst);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append(line(1)).ok());
    std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 3);
    spoil(torn.empty() ? "\n" : torn);
    ASSERT_TRUE(file->append(line(2)).ok()) << torn;
    const auto all = parsed();
    EXPECT_EQ(all.back()["n"], 2) << torn;
    EXPECT_EQ(all.front()["job"], "1");
  }
}

TEST_F(TraceFiles, AnotherJobBeginsAnew) {
  ASSERT_TRUE(TraceFile::open(path_, kFirst)->append(line(1)).ok());
  ASSERT_TRUE(TraceFile::open(path_, R"({"job":"2"})")->append(line(2)).ok());
  EXPECT_EQ(parsed(), nlohmann::json::parse(R"([{"job":"2"},{"n":2}])"));
}

TEST_F(TraceFiles, WhatCannotBeWrittenIsOneErrorWithThePath) {
  const auto nowhere = TraceFile::open("/nowhere/at/all.json", kFirst);
  EXPECT_EQ(nowhere.status().code(), base::Code::kSystem);
  EXPECT_THAT(nowhere.status().message(),
              HasSubstr("the timeline '/nowhere/at/all.json' cannot be opened: No such file"));
  EXPECT_THAT(TraceFile::open("/tmp", kFirst).status().message(), HasSubstr("cannot be opened"));
  EXPECT_THAT(TraceFile::open("/dev/full", kFirst).status().message(),
              HasSubstr("'/dev/full' cannot be written: No space left"));
}

TEST_F(TraceFiles, AFileThatSomebodyElseEmptiesIsAnError) {
  auto file = TraceFile::open(path_, kFirst);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, 0);
  EXPECT_THAT(file->append(line(1)).message(), HasSubstr("changed by another program"));
}

}  // namespace
}  // namespace ronde::runtime
