// SPDX-License-Identifier: Apache-2.0
// What process sets and messages leave in the trace of their job.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"
#include "test/unit/runtime/timeline/trace_kit.h"

namespace ronde::runtime {
namespace {

class TimelineOfParts : public Timelines {};

// Both ends of a message, small and large, and the operations of a process set with the job's.
TEST_F(TimelineOfParts, MessagesAndProcessSetsAreInItToo) {
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

}  // namespace
}  // namespace ronde::runtime
