// SPDX-License-Identifier: Apache-2.0
// The trace of a job: all ranks in one file, phases in their order, the late rank by name, on and
// off while the job runs, and files that cannot be written.
#include "runtime/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

namespace ronde::runtime {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using testing::allreduce_of;
using ::testing::HasSubstr;
using testing::on_ranks;

class Timelines : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "/timeline_test." + std::to_string(::getpid()) + ".json";
    remove();
  }
  void TearDown() override { remove(); }
  void remove() {
    for (int host = 0; host < 4; ++host) std::filesystem::remove(Timeline::path_on(path_, host));
  }
  // The events of the file of a host.
  [[nodiscard]] std::vector<json> events(int host = 0) const {
    std::ifstream file(Timeline::path_on(path_, host));
    return json::parse(file).get<std::vector<json>>();
  }

  std::string path_;
};

// Reduces a vector of each name; `rank_late` comes 50 ms later than the others.
void step(int rank, Engine& engine, int rank_late = -1, int tensors = 3) {
  if (rank == rank_late) std::this_thread::sleep_for(milliseconds(50));
  std::vector<std::vector<float>> data(static_cast<std::size_t>(tensors),
                                       std::vector<float>(40'000, 1.0F));
  std::vector<Engine::WorkPtr> works;
  for (std::size_t i = 0; i < data.size(); ++i) {
    auto work = engine.submit(allreduce_of("layer" + std::to_string(i), data[i]));
    ASSERT_TRUE(work.ok()) << work.status().message();
    works.push_back(std::move(*work));
  }
  for (const Engine::WorkPtr& work : works) EXPECT_TRUE(engine.wait(*work).ok());
}

std::int64_t nanoseconds(const json& event, const char* key) {
  return static_cast<std::int64_t>(event.at(key).get<double>() * 1000.0 + 0.5);
}

// The slices of each row, in the order of their beginnings.
std::map<std::pair<int, int>, std::vector<json>> slices_of(const std::vector<json>& events) {
  std::map<std::pair<int, int>, std::vector<json>> rows;
  for (const json& event : events) {
    if (event.at("ph") == "X") rows[{event.at("pid"), event.at("tid")}].push_back(event);
  }
  for (auto& [row, slices] : rows) {
    std::stable_sort(slices.begin(), slices.end(), [](const json& a, const json& b) {
      return a.at("ts").get<double>() < b.at("ts").get<double>();
    });
  }
  return rows;
}

// Neither overlaps with the next one in its row.
void expect_in_order(const std::vector<json>& events) {
  for (const auto& [row, slices] : slices_of(events)) {
    for (std::size_t i = 1; i < slices.size(); ++i) {
      // A double of microseconds since the boot of a machine does not have every nanosecond.
      EXPECT_LE(nanoseconds(slices[i - 1], "ts") + nanoseconds(slices[i - 1], "dur"),
                nanoseconds(slices[i], "ts") + 500)
          << slices[i - 1] << "\n"
          << slices[i];
    }
  }
}

std::string row_name(const std::vector<json>& events, const json& of) {
  for (const json& event : events) {
    if (event.at("name") == "thread_name" && event.at("pid") == of.at("pid") &&
        event.at("tid") == of.at("tid")) {
      return event.at("args").at("name");
    }
  }
  return "";
}

std::vector<json> with(const std::vector<json>& events, const char* key, const std::string& value) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event.contains(key) && event.at(key) == value) found.push_back(event);
  }
  return found;
}

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

// Both ends of a message, small and large, and the operations of a process set with the job's.
TEST_F(Timelines, MessagesAndProcessSetsAreInItToo) {
  testing::EngineOptions options;
  options.shape = base::JobShape::one_host(3);
  testing::run_job(3, options, [&](int rank, Engine& engine) {
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    const auto set = engine.subset({1, 2}, "pair");
    for (const std::int64_t count : {10, 100'000}) {
      std::vector<float> data(static_cast<std::size_t>(count), 1.0F);
      MessageRequest message{.rank = rank == 1 ? 2 : 1, .tag = 7, .dtype = base::DType::kF32};
      message.count = count;
      message.memory = reinterpret_cast<std::byte*>(data.data());
      if (rank == 0) continue;
      const auto work = rank == 1 ? engine.send(message) : engine.receive(message);
      ASSERT_TRUE(engine.wait(*work.value()).ok());
      ASSERT_TRUE((*set)->wait(*(*set)->submit(allreduce_of("x", data)).value()).ok());
    }
    for (int i = 0; i < 3 && rank > 0; ++i) {
      if (rank == 2) std::this_thread::sleep_for(milliseconds(50));
      std::vector<float> data(10, 1.0F);
      ASSERT_TRUE((*set)->wait(*(*set)->submit(allreduce_of("y", data)).value()).ok());
    }
    if (rank > 0) {
      EXPECT_TRUE((*set)->close().ok());
    }
    step(rank, engine);  // the timeline of the job goes on
    ASSERT_TRUE(engine.stop_timeline().ok());
  });
  const std::vector<json> all = events();
  expect_in_order(all);
  for (const auto& [name, pid] :
       std::map<std::string, int>{{"send to rank 2", 1}, {"recv from rank 1", 2}}) {
    const auto ends = with(all, "name", name);
    ASSERT_EQ(ends.size(), 4U) << name;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(ends[i].at("pid"), pid);
      EXPECT_EQ(ends[i].at("ph"), i % 2 == 0 ? "b" : "e");
      EXPECT_EQ(ends[i].at("id"), ends[i / 2 * 2].at("id"));
      EXPECT_EQ(ends[i].at("args").at("tag"), 7);
      EXPECT_EQ(ends[i].at("args").at("bytes"), i < 2 ? 40 : 400'000);
    }
    EXPECT_NE(ends[0].at("id"), ends[2].at("id"));
  }
  std::map<std::string, int> rows;
  for (const json& slice : with(all, "cat", "ALLREDUCE")) ++rows[row_name(all, slice)];
  EXPECT_EQ(rows["allreduce.pair/x"], 4);  // two on two ranks
  EXPECT_EQ(rows["allreduce.layer0"], 3);
  // With its number in the job, which is not that in the set.
  const auto waits = with(all, "name", "wait for rank 2");
  EXPECT_TRUE(std::any_of(waits.begin(), waits.end(), [&](const json& slice) {
    return slice.at("pid") == 1 && row_name(all, slice) == "allreduce.pair/y";
  }));
  int batches = 0;
  for (const json& slice : with(all, "cat", "BATCH")) {
    if (row_name(all, slice) == "batches of pair") ++batches;
  }
  EXPECT_EQ(batches, 10);
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
  testing::run_job(kRanks, options, [&](int rank, Engine& engine) {
    step(rank, engine);  // the entries of the plan
    ASSERT_TRUE(engine.start_timeline(path_, false).ok());
    for (int i = 0; i < 5; ++i) step(rank, engine, kLate, 1);
    ASSERT_TRUE(engine.stop_timeline().ok());
  });
  std::map<int, int> named;
  for (const json& wait : with(events(), "cat", "NEGOTIATE_ALLREDUCE")) {
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
  testing::run_job(4, options, [&](int rank, Engine& engine) {
    step(rank, engine);
    step(rank, engine, 3);
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
