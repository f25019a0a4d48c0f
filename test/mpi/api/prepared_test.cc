// SPDX-License-Identifier: Apache-2.0
// ronde::Prepared through libronde.so, between processes: results, sizes that take lines and that
// do not, and the order against other operations.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <ronde/ronde.hpp>

namespace {

TEST(Prepared, RunsAgainAndAgain) {
  ronde::Engine engine;
  const float ranks = static_cast<float>(engine.size());
  for (const std::size_t size : {1UL, 1024UL, 1025UL, 100'000UL}) {
    std::vector<float> data(size);
    std::vector<float> weights(size);
    std::vector<float> beside(3);
    const std::string name = std::to_string(size);
    ronde::Prepared average = engine.prepare_allreduce("average" + name, data);
    ronde::Prepared copy = engine.prepare_broadcast("copy" + name, weights, engine.size() - 1);
    ronde::Prepared meet = engine.prepare_barrier("meet" + name);
    for (int call = 0; call < 50; ++call) {
      data.assign(size, static_cast<float>(engine.rank() * 2 + call));
      weights.assign(size, static_cast<float>(engine.rank() + call));
      average.start();
      copy.start();
      engine.allreduce_blocking("beside", beside);
      copy.wait();
      average.wait();
      ASSERT_EQ(data.back(), ranks - 1.0F + static_cast<float>(call));
      ASSERT_EQ(weights.front(), ranks - 1.0F + static_cast<float>(call));
      meet.run();
    }
  }
  engine.close();
}

// A call that is late ends the operation for all; the engine goes on.
TEST(Prepared, EndsAtItsDeadlineOnAllRanks) {
  ronde::Engine engine;
  if (engine.size() != engine.local_size() || engine.size() == 1) return;  // it has no lines
  std::vector<float> data(1);
  ronde::Prepared sum = engine.prepare_allreduce(
      "timed", data, ronde::sum, {}, std::chrono::milliseconds(engine.rank() == 0 ? 100 : 60'000));
  sum.run();
  if (engine.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  try {
    sum.run();
    FAIL() << "nobody was there in time";
  } catch (const ronde::Error& error) {
    EXPECT_EQ(error.status(), RONDE_DEADLINE) << error.what();
    EXPECT_EQ(error.rank(), engine.rank() == 0 ? 1 : 0);
  }
  engine.allreduce_blocking("goes on", data);
  engine.close();
}

TEST(Prepared, GathersAndScatters) {
  ronde::Engine engine;
  std::vector<std::int64_t> mine{engine.rank(), engine.rank() * 10};
  std::vector<std::int64_t> parts(static_cast<std::size_t>(engine.size()));
  std::vector<std::int64_t> part(1);
  ronde::Prepared gather = engine.prepare_allgather("gather", mine);
  ronde::Prepared scatter = engine.prepare_reduce_scatter("scatter", parts, part, ronde::sum);
  for (int call = 0; call < 20; ++call) {
    mine[0] = engine.rank() + call;
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<std::int64_t>(i) + call;
    gather.run();
    scatter.run();
    const auto all = gather.output<std::int64_t>();
    ASSERT_EQ(all.size(), static_cast<std::size_t>(engine.size()) * 2);
    for (std::size_t rank = 0; rank < all.size() / 2; ++rank) {
      EXPECT_EQ(all[2 * rank], static_cast<std::int64_t>(rank) + call);
      EXPECT_EQ(all[2 * rank + 1], static_cast<std::int64_t>(rank) * 10);
    }
    EXPECT_EQ(part[0], (engine.rank() + call) * engine.size());
  }
  EXPECT_THROW((void)gather.output<float>(), std::logic_error);
  engine.close();
  try {
    gather.run();
    FAIL() << "a closed engine runs nothing";
  } catch (const ronde::Error& error) {
    EXPECT_EQ(error.status(), RONDE_CLOSED);
  }
}

}  // namespace
