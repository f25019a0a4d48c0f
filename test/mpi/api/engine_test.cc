// SPDX-License-Identifier: Apache-2.0
// libronde.so as an outsider uses it, in a job that mpirun started and in which Ronde starts MPI.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ronde/ronde.hpp>

namespace {

int expected_ranks() { return std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE")); }

TEST(MpiEngine, KnowsItsRanks) {
  const ronde::Engine engine;
  EXPECT_EQ(engine.size(), expected_ranks());
  EXPECT_EQ(engine.rank(), std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")));
  EXPECT_EQ(engine.local_rank(), engine.rank());
  EXPECT_EQ(engine.local_size(), engine.size());
}

TEST(MpiEngine, DescribesWhereEachRankRuns) {
  ronde::Engine engine;
  const std::vector<std::int64_t> mine{::getpid()};
  const auto pids = engine.allgather_blocking("pids", std::span(mine));
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  std::istringstream lines(engine.describe());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line.substr(0, 10), "rank  host");
  for (int rank = 0; rank < engine.size(); ++rank) {
    ASSERT_TRUE(std::getline(lines, line)) << engine.describe();
    std::istringstream words(line);
    int number = -1;
    std::string where;
    std::string address;
    std::int64_t pid = -1;
    words >> number >> where >> address >> pid;
    EXPECT_EQ(number, rank);
    EXPECT_EQ(where, host.data());
    EXPECT_EQ(address, "-");
    EXPECT_EQ(pid, pids[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(line.ends_with("in shared memory"), engine.size() > 1) << line;
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;
  engine.close();
  EXPECT_THROW(static_cast<void>(engine.describe()), std::logic_error);
}

TEST(MpiEngine, ADisagreementIsAnErrorEverywhereAndTheEngineLivesOn) {
  ronde::Engine engine;
  if (engine.size() > 1) {
    std::vector<float> data(engine.rank() == 0 ? 8 : 9);
    try {
      engine.allreduce_blocking("fc1/weight", std::span(data));
      ADD_FAILURE() << "the ranks disagree about the shape";
    } catch (const ronde::Error& error) {
      EXPECT_EQ(error.status(), RONDE_MISMATCH);
      const std::string text = error.what();
      EXPECT_NE(text.find("'fc1/weight'"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 0 submitted allreduce(average, f32, [8])"), std::string::npos)
          << text;
      EXPECT_NE(text.find("engine_test.cc:"), std::string::npos) << text;
    }
  }
  std::vector<float> good(8, 2.0F);
  engine.allreduce_blocking("fc1/weight", std::span(good));
  EXPECT_EQ(good[7], 2.0F);
}

TEST(MpiEngine, CanBeClosedAndOpenedAgain) {
  for (int round = 0; round < 3; ++round) {
    ronde::Engine engine;
    std::vector<float> data{1.0F};
    engine.allreduce_blocking("again", std::span(data), ronde::sum);
    EXPECT_EQ(data[0], static_cast<float>(engine.size()));
    engine.close();
  }
}

TEST(MpiEngine, TwoEnginesAtOnce) {
  ronde::Engine first;
  ronde::Engine second;
  std::vector<float> a(50000, 1.0F);
  std::vector<float> b(50000, 2.0F);
  ronde::Work work_a = first.allreduce("same name", std::span(a), ronde::sum);
  ronde::Work work_b = second.allreduce("same name", std::span(b), ronde::sum);
  // The works of the ranks are waited for in different orders.
  (first.rank() % 2 == 0 ? work_a : work_b).wait();
  (first.rank() % 2 == 0 ? work_b : work_a).wait();
  EXPECT_EQ(a.back(), static_cast<float>(first.size()));
  EXPECT_EQ(b.back(), 2.0F * static_cast<float>(first.size()));
}

TEST(MpiEngine, GradientAverager) {
  ronde::Engine engine;
  std::vector<float> weight(300);
  std::vector<float> bias(3);
  // One work starts in wait(), the other at once.
  for (const std::size_t bucket : {ronde::GradientAverager::kBucketBytes, std::size_t{0}}) {
    ronde::GradientAverager averager(engine, ronde::average, {}, bucket);
    const auto weight_id = averager.add("weight", std::span(weight));
    const auto bias_id = averager.add("bias", std::span(bias));
    for (int step = 0; step < 10; ++step) {
      std::fill(weight.begin(), weight.end(), static_cast<float>(engine.rank() * step));
      std::fill(bias.begin(), bias.end(), static_cast<float>(engine.rank() + step));
      if (engine.rank() % 2 == 0) {
        averager.ready(weight_id);
        averager.ready(bias_id);
      } else {
        averager.ready(bias_id);
        averager.ready(weight_id);
      }
      averager.wait();
      const float mean_rank = static_cast<float>(engine.size() - 1) / 2.0F;
      EXPECT_FLOAT_EQ(weight[299], mean_rank * static_cast<float>(step));
      EXPECT_FLOAT_EQ(bias[0], mean_rank + static_cast<float>(step));
    }
  }
}

}  // namespace
