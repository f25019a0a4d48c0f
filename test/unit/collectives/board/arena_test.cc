// SPDX-License-Identifier: Apache-2.0
// The allocator of an arena: alignment, exhaustion, coalescing, pages that go back to the system,
// forks and threads, and long random runs against a serial account.
#include "collectives/board/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/board/shared_memory.h"

namespace ronde::collectives {
namespace {

using base::Bytes;

constexpr std::int64_t kPage = 4096;

std::shared_ptr<SharedMemory> memory_of(std::int64_t bytes, bool heap = true) {
  auto memory = heap ? SharedMemory::create_heap(Bytes(bytes))
                     : SharedMemory::create_memfds(std::array{Bytes(bytes)});
  EXPECT_TRUE(memory.ok()) << memory.status().to_string();
  return *memory;
}

// Counts the pages of this memory that the process holds.
std::size_t pages_held(std::span<std::byte> memory) {
  std::vector<unsigned char> held(memory.size() / kPage);
  EXPECT_EQ(::mincore(memory.data(), memory.size(), held.data()), 0);
  std::size_t count = 0;
  for (const unsigned char one : held) count += one & 1U;
  return count;
}

TEST(Arena, GivesOutAlignedMemoryOfTheSizeThatWasAskedFor) {
  const auto memory = memory_of(64 * kPage);
  Arena arena(memory->bytes());
  std::byte* end = memory->bytes().data();
  for (const std::int64_t bytes : {0, 1, 63, 64, 65, 4095, 4096, 4097}) {
    const auto place = arena.allocate(Bytes(bytes));
    ASSERT_TRUE(place.ok()) << place.status().message();
    EXPECT_EQ(place->size(), static_cast<std::size_t>(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(place->data()) % Arena::kAlignment, 0U);
    EXPECT_EQ(place->data(), end) << "the lowest place, which no other has";
    end = place->data() + std::max<std::int64_t>((bytes + 63) / 64 * 64, 64);
  }
}

TEST(Arena, SaysWhatIsFullAndWhatToDo) {
  const auto memory = memory_of(2 * kPage);
  Arena arena(memory->bytes());
  ASSERT_TRUE(arena.allocate(Bytes(kPage + 1)).ok());
  for (const std::int64_t bytes : {kPage, 2 * kPage + 1, std::int64_t{1} << 62}) {
    const auto refused = arena.allocate(Bytes(bytes));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), base::Code::kOutOfMemory);
    const std::string text = refused.status().message();
    EXPECT_NE(text.find(std::to_string(bytes) + " bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("4160 of the 8192"), std::string::npos) << text;
    EXPECT_NE(text.find("RONDE_BUFFER_BYTES"), std::string::npos) << text;
  }
  EXPECT_TRUE(arena.allocate(Bytes(kPage - 64)).ok());
  Arena none({});
  EXPECT_EQ(none.allocate(Bytes(0)).status().code(), base::Code::kOutOfMemory);
}

TEST(Arena, JoinsFreeNeighboursInEveryOrder) {
  const auto memory = memory_of(3 * kPage);
  Arena arena(memory->bytes());
  std::vector<std::size_t> order{0, 1, 2};
  do {
    std::vector<std::byte*> places;
    for (int i = 0; i < 3; ++i) places.push_back(arena.allocate(Bytes(kPage))->data());
    EXPECT_FALSE(arena.allocate(Bytes(1)).ok());
    for (const std::size_t i : order) arena.release(places[i]);
    const auto whole = arena.allocate(Bytes(3 * kPage));
    ASSERT_TRUE(whole.ok());
    arena.release(whole->data());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(LiesIn, KnowsWhatLiesInside) {
  const auto memory = memory_of(3 * kPage);
  const auto middle = memory->bytes().subspan(kPage, kPage);
  EXPECT_TRUE(lies_in(middle, middle.data(), kPage));
  EXPECT_TRUE(lies_in(middle, middle.data() + kPage - 1, 1));
  EXPECT_FALSE(lies_in(middle, middle.data() + 1, kPage));
  EXPECT_FALSE(lies_in(middle, middle.data() + kPage, 1));
  EXPECT_FALSE(lies_in(middle, middle.data() - 1, 2));
  EXPECT_FALSE(lies_in(middle, nullptr, 1));
  EXPECT_TRUE(lies_in(middle, nullptr, 0));
  EXPECT_FALSE(lies_in(middle, middle.data() + 1, SIZE_MAX));
}

TEST(Arena, GivesPagesBackOnBothBackings) {
  for (const bool heap : {true, false}) {
    const auto memory = memory_of(64 * kPage, heap);
    Arena arena(memory->bytes());
    // Three blocks that share pages with their neighbours.
    std::vector<std::span<std::byte>> places;
    for (int i = 0; i < 3; ++i) places.push_back(*arena.allocate(Bytes(10 * kPage + 64)));
    for (const auto place : places) std::memset(place.data(), 1, place.size());
    ASSERT_EQ(pages_held(memory->bytes()), 31U) << heap;
    arena.release(places[1].data());
    EXPECT_EQ(pages_held(memory->bytes()), 22U) << heap;
    EXPECT_EQ(places[0].back(), std::byte{1});
    EXPECT_EQ(places[2].front(), std::byte{1});
    arena.release(places[0].data());
    EXPECT_EQ(pages_held(memory->bytes()), 11U) << heap;
    arena.release(places[2].data());
    EXPECT_EQ(pages_held(memory->bytes()), 0U) << heap;
  }
}

TEST(Arena, AForkedChildDoesNotTouchTheMemoryOfItsParent) {
  const auto memory = memory_of(4 * kPage, false);
  Arena arena(memory->bytes());
  const auto place = *arena.allocate(Bytes(2 * kPage));
  std::memset(place.data(), 7, place.size());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    arena.release(place.data());
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const std::byte one : place) ASSERT_EQ(one, std::byte{7});
}

// Fills what it allocates with a mark of its own, and checks the mark before it releases the
// memory.
void use_at_random(Arena& arena, unsigned char mark, std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  std::vector<std::span<std::byte>> mine;
  for (int round = 0; round < rounds; ++round) {
    const bool take = mine.empty() || random() % 5 < 3;
    if (take) {
      const auto place = arena.allocate(Bytes(
          static_cast<std::int64_t>(random() % 4 == 0 ? random() % (16 * kPage) : random() % 300)));
      if (place.ok()) {
        std::memset(place->data(), mark, place->size());
        mine.push_back(*place);
        continue;
      }
    }
    if (mine.empty()) continue;
    std::swap(mine[random() % mine.size()], mine.back());
    for (const std::byte one : mine.back()) ASSERT_EQ(one, std::byte{mark});
    arena.release(mine.back().data());
    mine.pop_back();
  }
  for (const auto place : mine) {
    for (const std::byte one : place) ASSERT_EQ(one, std::byte{mark});
    arena.release(place.data());
  }
}

TEST(Arena, NobodyGetsWhatAnotherHas) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const auto memory = memory_of(64 * kPage, seed % 2 == 0);
    Arena arena(memory->bytes());
    std::vector<std::thread> threads;
    for (unsigned char mark = 1; mark <= 4; ++mark) {
      threads.emplace_back(
          [&arena, mark, seed] { use_at_random(arena, mark, seed * 10 + mark, 400); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(pages_held(memory->bytes()), 0U);
    EXPECT_TRUE(arena.allocate(Bytes(64 * kPage)).ok()) << "in one piece again";
  }
}

}  // namespace
}  // namespace ronde::collectives
