// SPDX-License-Identifier: Apache-2.0
// Ranks, here threads, that look at each other's calls at once.
#include "bindings/mpi/call_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace ronde::mpi_allreduce {
namespace {

// As many views of one memory as there are ranks.
std::vector<std::unique_ptr<CallTable>> tables_of(int size) {
  const std::size_t bytes = CallTable::bytes_for(size);
  const int file = memfd_create("table", 0);
  EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes)), 0);
  std::vector<std::unique_ptr<CallTable>> all;
  for (int rank = 0; rank < size; ++rank) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(memory, MAP_FAILED);
    all.push_back(std::make_unique<CallTable>(static_cast<CallTable::Entry*>(memory), rank, size));
  }
  close(file);
  return all;
}

TEST(CallTable, WaitForAll) {
  const auto all = tables_of(3);
  all[0]->enter(5, 1, 7);
  EXPECT_EQ(all[0]->look(5, 1), Meeting::kWaits);
  all[2]->enter(5, 1, 8);
  all[1]->enter(4, 1, 7);
  EXPECT_EQ(all[0]->look(5, 1), Meeting::kWaits) << "the call of another communicator";
  all[1]->enter(5, 1, 7);
  for (const auto& table : all) EXPECT_EQ(table->look(5, 1), Meeting::kDiffers);
}

TEST(CallTable, OneThatIsBeyondHasSeenAllEqual) {
  const auto all = tables_of(3);
  for (const auto& table : all) table->enter(0, 1, 7);
  EXPECT_EQ(all[0]->look(0, 1), Meeting::kEqual);
  all[0]->enter(0, 2, 9);
  EXPECT_EQ(all[1]->look(0, 1), Meeting::kEqual) << "it is in the next call, which differs";
  EXPECT_EQ(all[0]->look(0, 2), Meeting::kWaits);
}

TEST(CallTable, NobodyWaitsForOneThatGivesUp) {
  const auto all = tables_of(3);
  all[0]->enter(0, 1, 7);
  all[2]->give_up();
  EXPECT_EQ(all[0]->look(0, 1), Meeting::kEqual);
  for (int rank = 1; rank < 3; ++rank) all[static_cast<std::size_t>(rank)]->enter(0, 1, 8);
  EXPECT_EQ(all[0]->look(0, 1), Meeting::kEqual);
}

// Which call a rank makes: in every seventh one of them differs.
std::uint64_t call_at(std::uint64_t number, int rank, int size) {
  const bool differs = number % 7 == 0 && rank == static_cast<int>(number) % size;
  return number % 5 + (differs ? 100 : 0);
}

TEST(CallTable, AllRanksDecideAlikeAndInTime) {
  constexpr int kRanks = 4;
  constexpr std::uint64_t kCalls = 20000;
  const auto all = tables_of(kRanks);
  std::barrier engine(kRanks);  // in which all meet where they differ
  std::vector<std::uint64_t> wrong(kRanks, 0);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        CallTable& mine = *all[static_cast<std::size_t>(rank)];
        for (std::uint64_t number = 1; number <= kCalls; ++number) {
          mine.enter(0, number, call_at(number, rank, kRanks));
          Meeting meeting = mine.look(0, number);
          while (meeting == Meeting::kWaits) {
            std::this_thread::yield();
            meeting = mine.look(0, number);
          }
          const auto expected = number % 7 == 0 ? Meeting::kDiffers : Meeting::kEqual;
          if (meeting != expected) ++wrong[static_cast<std::size_t>(rank)];
          if (expected == Meeting::kDiffers) engine.arrive_and_wait();
        }
      });
    }
  }
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace ronde::mpi_allreduce
