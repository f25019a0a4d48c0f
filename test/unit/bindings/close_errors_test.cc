// SPDX-License-Identifier: Apache-2.0
// What close() tells: errors that nobody has heard of, and what it fails itself. Through
// libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// An error that nobody has heard of is told by close().
std::string said_at_close(int dropped) {
  std::string said;
  const ronde::LocalJob job(2);
  std::thread other([&] {
    ronde::Engine engine(job, 1);
    for (int i = 0; i <= dropped; ++i) {
      std::vector<float> data(3);
      auto work = engine.allreduce("x" + std::to_string(i), std::span(data));
      EXPECT_THROW(work.wait(), ronde::Error);
    }
    engine.close();
  });
  ronde::Engine engine(job, 0);
  std::vector<float> data(4);
  for (int i = 0; i < dropped; ++i) {
    const auto work = engine.allreduce("x" + std::to_string(i), std::span(data));
  }
  auto heard = engine.allreduce("x" + std::to_string(dropped), std::span(data));
  EXPECT_THROW(heard.wait(), ronde::Error);
  try {
    engine.close();
  } catch (const ronde::Error& error) {
    said = error.what();
  }
  other.join();
  return said;
}

TEST(CloseErrors, O14CloseTellsOfErrorsThatNobodyHasHeardOf) {
  EXPECT_EQ(said_at_close(0), "");
  EXPECT_THAT(said_at_close(1),
              HasSubstr("1 operation failed, and nobody waited for the result; the first: 'x0'"));
  EXPECT_THAT(said_at_close(2), HasSubstr("2 operations failed, and nobody waited"));
}

// ... and counts what it fails itself.
TEST(CloseErrors, O14CloseCountsOneOperation) {
  const ronde::LocalJob job(2);
  std::latch is_submitted(1);  // a rank that has closed by then would have it refused
  std::thread other([&] {
    ronde::Engine engine(job, 1);
    is_submitted.wait();
    std::this_thread::sleep_for(milliseconds(200));
    engine.close();
  });
  ronde::Engine engine(job, 0);
  std::vector<float> data(4);
  auto work = engine.allreduce("x", std::span(data));
  is_submitted.count_down();
  try {
    engine.close();
    ADD_FAILURE() << "rank 1 never submits it";
  } catch (const ronde::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("1 operation failed while the engine closed"));
  }
  EXPECT_THROW(work.wait(), ronde::Error);
  other.join();
}

}  // namespace
