// SPDX-License-Identifier: Apache-2.0
// A message with a deadline of its own, through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::thrown_by;
using ::testing::HasSubstr;

void wait_in_vain(ronde::Engine& engine) {
  std::vector<float> data(1);
  const int other = 1 - engine.rank();
  const auto never = std::chrono::nanoseconds(-1);
  EXPECT_THAT(thrown_by([&] { engine.send_blocking(other, 5, std::span(data), never); }),
              HasSubstr("deadline_ns is -1"));
  const auto soon = std::chrono::milliseconds(200);
  EXPECT_THAT(thrown_by([&] { engine.recv_blocking(other, 5, std::span(data), soon); }),
              HasSubstr("This is the deadline of the message"));
  EXPECT_THROW(engine.close(), ronde::Error);
}

TEST(MessageDeadline, FailsTheJobByName) {
  const ronde::LocalJob job(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&job, rank] {
      ronde::Engine engine(job, rank);
      wait_in_vain(engine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
