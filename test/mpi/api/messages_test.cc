// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks through libronde.so, between processes: every size, out of plain
// memory and buffers, with the kernel's copy and without it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include <ronde/ronde.hpp>

namespace {

std::vector<double> numbers(std::size_t count, int seed) {
  std::vector<double> data(count);
  std::iota(data.begin(), data.end(), seed);
  return data;
}

// Each rank sends to the next one and receives from the one before.
void go_round(ronde::Engine& engine) {
  const int next = (engine.rank() + 1) % engine.size();
  const int before = (engine.rank() + engine.size() - 1) % engine.size();
  for (const std::size_t count : {0UL, 1UL, 4096UL, 4097UL, 70'000UL, 1'000'003UL}) {
    const std::vector<double> mine = numbers(count, engine.rank());
    std::vector<double> theirs(count);
    ronde::Work sent = engine.send(next, 7, std::span(mine));
    engine.recv_blocking(before, 7, std::span(theirs));
    sent.wait();
    ASSERT_EQ(theirs, numbers(count, before)) << count;
  }
}

TEST(ApiMessages, GoRound) {
  ronde::Engine engine;
  for (int i = 0; i < 3; ++i) go_round(engine);
  EXPECT_EQ(engine.statistics().batches, 0U);
  engine.close();
}

// Where the kernel does not allow the copy they go through the board.
TEST(ApiMessages, GoRoundByTheKernelsCopy) {
  ::setenv("RONDE_MESSAGES", "copy", 1);
  ronde::Engine engine;
  ::unsetenv("RONDE_MESSAGES");
  go_round(engine);
  engine.close();
}

TEST(ApiMessages, ComeFromBuffersAndFromAnyRank) {
  ronde::Engine engine;
  constexpr std::size_t kCount = 300'000;
  ronde::Buffer<float> buffer(engine, kCount);
  if (engine.rank() == 0) {
    for (int i = 1; i < engine.size(); ++i) {
      const int source = engine.recv_any_blocking(1, buffer.span());
      EXPECT_EQ(buffer[kCount - 1], static_cast<float>(source));
      ronde::Work answer = engine.send(source, 2, buffer.span());
      answer.wait();
    }
  } else {
    for (float& value : buffer) value = static_cast<float>(engine.rank());
    engine.send_blocking(0, 1, buffer.span());
    std::vector<float> back(kCount);
    ronde::Work work = engine.recv_any(2, std::span(back));
    work.wait();
    EXPECT_EQ(work.source(), 0);
    EXPECT_EQ(back.front(), static_cast<float>(engine.rank()));
  }
  engine.close();
}

TEST(ApiMessages, ThatDoNotFitAreNamed) {
  ronde::Engine engine;
  if (engine.size() == 1) return engine.close();
  std::vector<float> data(100'000);
  std::vector<double> wrong(100'000);
  if (engine.rank() < 2) {
    try {
      if (engine.rank() == 0) engine.send_blocking(1, 4, std::span(data));
      if (engine.rank() == 1) engine.recv_blocking(0, 4, std::span(wrong));
      ADD_FAILURE() << "no error";
    } catch (const ronde::Error& error) {
      EXPECT_EQ(error.status(), RONDE_MISMATCH);
      const std::string text = error.what();
      EXPECT_NE(text.find("rank 0 sends 100000 of f32"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1 receives 100000 of f64"), std::string::npos) << text;
    }
  }
  engine.allreduce_blocking("after", std::span(data), ronde::sum);
  engine.close();
}

}  // namespace
