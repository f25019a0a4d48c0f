// SPDX-License-Identifier: Apache-2.0
// ronde::Buffer through libronde.so, between processes: in place, mixed with other memory, reused,
// and after the engine is closed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ronde/ronde.hpp>

namespace {

float value(int rank, std::size_t i) {
  return static_cast<float>(i % 1013) * static_cast<float>(rank + 1) + 0.25F;
}
void fill(std::span<float> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i);
}
void expect_sum(std::span<const float> data, int ranks) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, i);
    ASSERT_EQ(data[i], sum) << i;
  }
}

TEST(Buffer, IsReducedOfEverySizeAndGivenOutAgain) {
  ronde::Engine engine;
  for (const std::size_t size : {0UL, 1UL, 1000UL, 40'003UL, 1'000'001UL}) {
    for (int round = 0; round < 2; ++round) {
      ronde::Buffer<float> buffer(engine, size);
      EXPECT_TRUE(std::all_of(buffer.begin(), buffer.end(), [](float x) { return x == 0; }));
      fill(buffer.span(), engine.rank());
      engine.allreduce("t" + std::to_string(size), buffer.span(), ronde::sum).wait();
      expect_sum(buffer.span(), engine.size());
    }
  }
  engine.close();
}

TEST(Buffer, MixesWithOtherMemoryAndMoves) {
  ronde::Engine engine;
  constexpr std::size_t kSize = 300'000;
  std::vector<float> plain(kSize);
  ronde::Buffer<float> first(engine, kSize);
  ronde::Buffer<float> buffer = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(buffer.size(), kSize);
  for (int step = 0; step < 12; ++step) {
    const bool on_board = step < 2 || (step + engine.rank()) % 2 == 0;
    const std::span<float> data = on_board ? buffer.span() : std::span(plain);
    fill(data, engine.rank());
    engine.allreduce_blocking("t", data, ronde::sum);
    expect_sum(data, engine.size());
  }
  EXPECT_LE(engine.statistics().full_requests, 2U);
  engine.close();
}

TEST(Buffer, TakesPartsAndOtherOperations) {
  ronde::Engine engine;
  ronde::Buffer<float> buffer(engine, 200'000);
  const std::span<float> part = buffer.span().subspan(16, 100'001);
  fill(part, engine.rank());
  std::vector<float> result(part.size());
  engine.allreduce("out of place", std::span<const float>(part), std::span(result), ronde::sum)
      .wait();
  expect_sum(result, engine.size());
  engine.allreduce("part", part, ronde::sum).wait();
  expect_sum(part, engine.size());
  EXPECT_EQ(buffer[15], 0);
  EXPECT_EQ(buffer[100'017], 0);
  fill(part, engine.rank());
  engine.broadcast("weights", part, 0).wait();
  EXPECT_EQ(part[7], value(0, 7));
  engine.close();
}

TEST(Allocator, GivesContainersThatAreSummedWhereTheyLie) {
  ronde::Engine engine;
  using Vector = std::vector<float, ronde::allocator<float>>;
  const ronde::allocator<float> allocator(engine);
  Vector vector(allocator);
  for (std::size_t i = 0; i < 100'003; ++i) vector.push_back(value(engine.rank(), i));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(vector.data()) % 64, 0U);
  Vector moved(allocator);
  moved = std::move(vector);
  engine.allreduce("vector", std::span(moved), ronde::sum).wait();
  expect_sum(moved, engine.size());
  const bool one_host = engine.local_size() == engine.size();
  EXPECT_EQ(engine.statistics().in_place_bytes, one_host ? moved.size() * sizeof(float) : 0U);
  EXPECT_EQ(engine.statistics().payload_bytes, moved.size() * sizeof(float));
  std::map<int, int, std::less<>, ronde::allocator<std::pair<const int, int>>> map(allocator);
  for (int i = 0; i < 100; ++i) map[i] = i;
  EXPECT_EQ(map.at(99), 99);
  EXPECT_THROW(moved.reserve(moved.max_size() + 1), std::length_error);
  engine.close();
  EXPECT_EQ(map.size(), 100U) << "what it holds outlives the engine";
}

// More than the board has is ordinary memory, with the same sums.
TEST(Allocator, TakesOrdinaryMemoryWhereTheBoardIsFull) {
  ::setenv("RONDE_BUFFER_BYTES", "65536", 1);
  ronde::Engine engine;
  ::unsetenv("RONDE_BUFFER_BYTES");
  std::vector<float, ronde::allocator<float>> vector(40'003, ronde::allocator<float>(engine));
  fill(vector, engine.rank());
  engine.allreduce("vector", std::span(vector), ronde::sum).wait();
  expect_sum(vector, engine.size());
  EXPECT_EQ(engine.statistics().in_place_bytes, 0U);
  engine.close();
}

TEST(Buffer, OutlivesItsEngine) {
  std::optional<ronde::Buffer<double>> buffer;
  {
    ronde::Engine engine;
    buffer.emplace(engine, 1000);
    engine.close();
  }
  std::fill(buffer->begin(), buffer->end(), 2.5);
  EXPECT_EQ((*buffer)[999], 2.5);
}

TEST(Buffer, SaysWhenThereIsNoMore) {
  ronde::Engine engine;
  try {
    const ronde::Buffer<char> buffer(engine, std::size_t{1} << 44U);
    FAIL() << "16 TiB";
  } catch (const ronde::Error& error) {
    EXPECT_EQ(error.status(), RONDE_OUT_OF_MEMORY);
    EXPECT_NE(std::string(error.what()).find("RONDE_BUFFER_BYTES"), std::string::npos);
  }
  EXPECT_EQ(ronde_buffer_memory(nullptr), nullptr);
  ronde_buffer_release(nullptr);
  engine.close();
}

}  // namespace
