// SPDX-License-Identifier: Apache-2.0
// The trace of a job: all ranks in one file, phases in their order, the late rank by name, on and
// off while the job runs, and files that cannot be written.
#include "runtime/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/support/eventually.h"
#include "test/unit/runtime/timeline/trace_kit.h"

namespace ronde::runtime {
namespace {

using ::testing::HasSubstr;
using testing::on_ranks;

TEST_F(Timelines, AllRanksAreInOneFileWithTheirPhasesInOrder) {
  constexpr int kSteps = 3;
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(3);
  testing::run_job(3, options, [&](int rank, Engine& engine) {
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    for (int i = 0; i < kSteps; ++i) step(rank, engine);
    ASSERT_TRUE(engine.stop_timeline().ok());
  });
  const std::vector<json> all = events();
  expect_in_order(all);
  EXPECT_EQ(with(all, "name", "process_name").size(), 3U);
  for (const char* category : {"NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE"}) {
    const auto slices = with(all, "cat", category);
    EXPECT_EQ(slices.size(), 3U * kSteps * 3U) << category;
    std::set<std::pair<int, std::string>> rows;
    for (const json& slice : slices) rows.insert({slice.at("pid"), row_name(all, slice)});
    EXPECT_EQ(rows.size(), 9U);
    EXPECT_EQ(rows.begin()->second, "allreduce.layer0");
  }
  for (const json& of_tensor : with(all, "cat", "ALLREDUCE")) {
    EXPECT_EQ(of_tensor.at("args").at("bytes"), 160'000);
  }
}

// Every phase of a batch lies inside it, and what is copied in is reduced and copied out later.
TEST_F(Timelines, ThePhasesOfABatchAreInsideIt) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(2);
  testing::run_job(2, options, [&](int rank, Engine& engine) {
    ASSERT_TRUE(engine.start_timeline(path_, true).ok());
    step(rank, engine);
    ASSERT_TRUE(engine.stop_timeline().ok());
  });
  const std::vector<json> all = events();
  const auto batches = with(all, "cat", "BATCH");
  ASSERT_FALSE(batches.empty());
  EXPECT_EQ(with(all, "name", "CYCLE_START").size(), batches.size());
  for (const json& batch : batches) {
    const std::int64_t begin = nanoseconds(batch, "ts");
    const std::int64_t end = begin + nanoseconds(batch, "dur");
    std::int64_t before = begin;
    for (const char* name : {"copy-in", "reduce", "copy-out"}) {
      std::vector<json> of_batch;
      for (const json& phase : with(all, "name", name)) {
        if (phase.at("pid") == batch.at("pid") &&
            "batch " + phase.at("args").at("batch").dump() == batch.at("name")) {
          of_batch.push_back(phase);
        }
      }
      ASSERT_EQ(of_batch.size(), 1U) << name << " of " << batch;
      const std::int64_t first = nanoseconds(of_batch[0], "ts");
      EXPECT_GE(first, before - 500) << name;
      EXPECT_LE(first + nanoseconds(of_batch[0], "dur"), end + 500) << name;
      EXPECT_LE(of_batch[0].at("args").at("busy_us").get<double>(),
                of_batch[0].at("dur").get<double>() + 0.001);
      before = first;
    }
  }
}

TEST_F(Timelines, TheRankThatIsLateIsNamed) {
  constexpr int kRanks = 4;
  constexpr int kLate = 2;
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(kRanks);
  std::atomic<int> others{0};  // that have come, in all steps, however busy the machine is
  testing::run_job(kRanks, options, [&](int rank, Engine& engine) {
    step(rank, engine);  // the entries of the plan
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(
          testing::eventually([&] { return rank != kLate || others >= (i + 1) * (kRanks - 1); }));
      step(rank, engine, kLate, 1, [&] { others += rank == kLate ? 0 : 1; });
    }
    ASSERT_TRUE(engine.stop_timeline().ok());
  });
  std::map<int, int> named;
  for (const json& wait : with(events(), "cat", "NEGOTIATE_ALLREDUCE")) {
    if (wait.at("pid") == kLate) {
      EXPECT_EQ(wait.at("name"), "negotiate");
      continue;
    }
    if (wait.at("dur").get<double>() < 25'000) continue;
    EXPECT_EQ(wait.at("name"), "wait for rank 2");
    ++named[wait.at("pid")];
  }
  EXPECT_EQ(named, (std::map<int, int>{{0, 5}, {1, 5}, {3, 5}}));
  for (const json& own : with(events(), "name", "negotiate")) EXPECT_EQ(own.at("pid"), kLate);
}

TEST_F(Timelines, StartedTwiceItHasBothPartsAndNothingBetween) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(2);
  testing::run_job(2, options, [&](int rank, Engine& engine) {
    ASSERT_TRUE(engine.stop_timeline().ok()) << "it is off";
    step(rank, engine);
    for (int part = 0; part < 2; ++part) {
      ASSERT_TRUE(engine.start_timeline(path_, false).ok());
      EXPECT_TRUE(engine.start_timeline(path_, false).ok()) << "as it is";
      const base::Status again = engine.start_timeline(path_ + ".other", false);
      EXPECT_EQ(again.code(), base::Code::kInvalidArgument);
      EXPECT_THAT(again.message(), HasSubstr("stop it first"));
      step(rank, engine);
      ASSERT_TRUE(engine.stop_timeline().ok());
      step(rank, engine);
    }
  });
  const std::vector<json> all = events();
  expect_in_order(all);
  EXPECT_EQ(with(all, "cat", "ALLREDUCE").size(), 2U * 2U * 3U);
}

// A row has one name, whatever came first when the timeline was started.
TEST_F(Timelines, RowsKeepTheirNamesInEveryPart) {
  testing::run_job(1, [&](int, Engine& engine) {
    for (const char* order : {"ab", "ba"}) {
      ASSERT_TRUE(engine.start_timeline(path_, false).ok());
      for (const char name : std::string(order)) {
        std::vector<float> data(10, 1.0F);
        auto work = engine.submit(allreduce_of(std::string(1, name), data));
        ASSERT_TRUE(work.ok());
        EXPECT_TRUE(engine.wait(**work).ok());
      }
      ASSERT_TRUE(engine.stop_timeline().ok());
    }
  });
  std::map<int, std::set<std::string>> names;
  for (const json& row : with(events(), "name", "thread_name")) {
    names[row.at("tid").get<int>()].insert(row.at("args").at("name").get<std::string>());
  }
  for (const auto& [row, of_row] : names) EXPECT_EQ(of_row.size(), 1U) << row;
}

TEST_F(Timelines, HasTheMarksOfTheProgram) {
  const std::string name = "a \"name\" with \\ and \xff";
  testing::run_job(1, [&](int, Engine& engine) {
    ASSERT_TRUE(engine.mark(MarkKind::kInstant, "before it is on").ok());
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    ASSERT_TRUE(engine.mark(MarkKind::kBegin, "forward").ok());
    ASSERT_TRUE(engine.mark(MarkKind::kInstant, name).ok());
    ASSERT_TRUE(engine.mark(MarkKind::kEnd, "forward").ok());
  });  // close() writes the rest
  std::string kinds;
  for (const json& event : events()) {
    if (event.at("ph") != "M") kinds += event.at("ph");
  }
  EXPECT_EQ(kinds, "BiE");
  EXPECT_EQ(with(events(), "ph", "i").at(0).at("name"), "a \"name\" with \\ and \xEF\xBF\xBD");
}

TEST_F(Timelines, EachHostHasAFileOfItsOwnAndSaysHowFarItsClockIsApart) {
  testing::EngineOptions options;
  options.shape = base::JobShape::of_leaders(std::vector<std::int32_t>{0, 0, 2, 2}).value();
  options.environment = {"RONDE_TIMELINE=" + path_};
  std::atomic<int> others{0};  // that have come before rank 3, however busy the machine is
  testing::run_job(4, options, [&](int rank, Engine& engine) {
    step(rank, engine);
    EXPECT_TRUE(testing::eventually([&] { return rank != 3 || others >= 3; }));
    step(rank, engine, 3, 3, [&] { ++others; });
  });
  std::set<int> ranks;
  for (int host = 0; host < 2; ++host) {
    const std::vector<json> all = events(host);
    expect_in_order(all);
    for (const json& slice : with(all, "cat", "ALLREDUCE")) {
      EXPECT_EQ(slice.at("pid").get<int>() / 2, host);
      ranks.insert(slice.at("pid").get<int>());
    }
    const auto clocks = with(all, "name", "clock");
    ASSERT_EQ(clocks.size(), 2U);
    for (const json& clock : clocks) {
      EXPECT_EQ(clock.at("args").at("hosts"), 2);
      const auto offset = clock.at("args").at("offset_ns").get<std::int64_t>();
      const auto error = clock.at("args").at("error_ns").get<std::int64_t>();
      EXPECT_EQ(error > 0, host == 1);
      EXPECT_LE(std::abs(offset), error) << "it is one clock";
    }
    // Each rank of the other host has asked again, since its timeline is on.
    EXPECT_EQ(with(all, "name", "clocks compared").size(), host == 1 ? 2U : 0U);
    EXPECT_FALSE(with(all, "name", "between hosts").empty());
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  // The ranks of the host that is complete wait for the other one.
  bool named = false;
  for (const json& wait : with(events(0), "name", "wait for other hosts")) {
    named = named || wait.at("dur").get<double>() > 25'000;
  }
  EXPECT_TRUE(named);
}

TEST_F(Timelines, APathThatCannotBeWrittenIsAnErrorAndTheJobGoesOn) {
  ::testing::internal::CaptureStderr();
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(2);
  options.environment = {"RONDE_TIMELINE=/nowhere/at/all.json"};
  testing::run_job(2, options, [&](int rank, Engine& engine) {
    step(rank, engine);
    const base::Status refused = engine.start_timeline("/nowhere/else.json", false);
    EXPECT_EQ(refused.code(), base::Code::kSystem);
    EXPECT_EQ(engine.start_timeline("", false).code(), base::Code::kInvalidArgument);
    step(rank, engine);
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the timeline '/nowhere/at/all.json' cannot be opened: No such file "
                              "or directory (RONDE_TIMELINE): the job goes on without a timeline"));
  EXPECT_EQ(said.find("cannot be opened"), said.rfind("cannot be opened")) << "one line";
}

// The disk is full, or somebody empties the file: the writer says so once, and stops.
TEST_F(Timelines, AFileThatCannotBeWrittenAnyMoreEndsItAndTheJobGoesOn) {
  ::testing::internal::CaptureStderr();
  testing::run_job(1, [&](int rank, Engine& engine) {
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    std::filesystem::resize_file(path_, 0);
    step(rank, engine);
    std::this_thread::sleep_for(milliseconds(300));
    step(rank, engine);
    const base::Status stopped = engine.stop_timeline();
    EXPECT_EQ(stopped.code(), base::Code::kSystem);
    EXPECT_THAT(stopped.message(), HasSubstr("changed by another program"));
    std::filesystem::remove(path_);
    EXPECT_TRUE(engine.start_timeline(path_, false).ok());
    step(rank, engine);
    EXPECT_TRUE(engine.stop_timeline().ok());
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the timeline ends here, and the job goes on without it"));
  EXPECT_EQ(said.find("ends here"), said.rfind("ends here")) << "one line";
  EXPECT_EQ(with(events(), "cat", "ALLREDUCE").size(), 3U);
}

// More marks than there is room for: what is lost is counted in the file.
TEST_F(Timelines, WhatThereIsNoRoomForIsCounted) {
  constexpr std::int64_t kMarks = 100'000;
  testing::run_job(1, [&](int, Engine& engine) {
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    for (std::int64_t i = 0; i < kMarks; ++i) {
      ASSERT_TRUE(engine.mark(MarkKind::kInstant, "m").ok());
    }
  });
  std::int64_t lost = 0;
  const std::vector<json> all = events();
  for (const json& event : with(all, "name", "events lost")) {
    lost += event.at("args").at("events").get<std::int64_t>();
  }
  EXPECT_EQ(lost + static_cast<std::int64_t>(with(all, "name", "m").size()), kMarks);
}

}  // namespace
}  // namespace ronde::runtime
