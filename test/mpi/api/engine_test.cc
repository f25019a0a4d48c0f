// SPDX-License-Identifier: Apache-2.0
// libronde.so as an outsider uses it, in a job that mpirun started and in which Ronde starts MPI.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ronde/ronde.hpp>

namespace {

int expected_ranks() { return std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE")); }

float rank_sum(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

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

TEST(MpiEngine, AllreducesOfEverySize) {
  ronde::Engine engine;
  const auto mine = static_cast<float>(engine.rank() + 1);
  for (const std::size_t length : {0U, 1U, 3U, 16U, 1000U, 70001U, 3000000U}) {
    std::vector<float> data(length, mine);
    engine.allreduce("x" + std::to_string(length), std::span(data), ronde::sum).wait();
    EXPECT_TRUE(std::all_of(data.begin(), data.end(),
                            [&](float value) { return value == rank_sum(engine.size()); }));
    std::vector<float> again(length, mine);
    engine.allreduce_blocking("x" + std::to_string(length), std::span(again), ronde::sum);
    EXPECT_EQ(again, data);
  }
}

TEST(MpiEngine, EveryOperation) {
  ronde::Engine engine;
  const int rank = engine.rank();
  const int size = engine.size();
  std::vector<std::int64_t> extreme{rank, -rank};
  engine.allreduce_blocking("max", std::span(extreme), ronde::max);
  EXPECT_EQ(extreme, (std::vector<std::int64_t>{size - 1, 0}));

  std::vector<double> mean{static_cast<double>(rank)};
  engine.allreduce_blocking("mean", std::span(mean));
  EXPECT_DOUBLE_EQ(mean[0], (size - 1) / 2.0);

  std::vector<float> weights(100000, static_cast<float>(rank));
  engine.broadcast_blocking("weights", std::span(weights), size - 1);
  EXPECT_EQ(weights.front(), static_cast<float>(size - 1));
  EXPECT_EQ(weights.back(), static_cast<float>(size - 1));

  const std::vector<std::int32_t> rows(static_cast<std::size_t>(rank * 3), rank);
  std::vector<std::int32_t> expected;
  for (int r = 0; r < size; ++r)
    expected.insert(expected.end(), static_cast<std::size_t>(r * 3), r);
  EXPECT_EQ(engine.allgather_blocking("rows", std::span(rows)), expected);

  engine.barrier_blocking();
}

TEST(MpiEngine, AnyOrderOfSubmission) {
  ronde::Engine engine;
  std::mt19937 random(static_cast<unsigned>(engine.rank()));
  std::vector<std::size_t> order(40);
  std::iota(order.begin(), order.end(), 0);
  for (int step = 0; step < 20; ++step) {
    std::vector<std::vector<float>> gradients;
    std::vector<ronde::Work> works;
    for (std::size_t t = 0; t < order.size(); ++t) {
      gradients.emplace_back(t * t + 1, static_cast<float>(engine.rank() + 1));
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t t : order) {
      works.push_back(
          engine.allreduce("g" + std::to_string(t), std::span(gradients[t]), ronde::sum));
    }
    for (ronde::Work& work : works) work.wait();
    for (const auto& gradient : gradients) EXPECT_EQ(gradient.back(), rank_sum(engine.size()));
  }
  EXPECT_EQ(engine.statistics().tensors, 800U);
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
