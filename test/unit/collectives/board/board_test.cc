// SPDX-License-Identifier: Apache-2.0
// The board on both backings: geometry, streams, arrivals and the ready queue; with threads as
// ranks on the heap and with processes on a memfd.
#include "collectives/board/board.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/board/layout.h"
#include "test/unit/collectives/boards.h"

namespace ronde::collectives {
namespace {

using base::Bytes;
using base::Code;

TEST(BoardLayout, SectionsLieApartAndOnTheirOwnCacheLines) {
  for (const std::int32_t ranks : {1, 2, 3, 8}) {
    for (const std::int64_t entries : {0, 1, 127, 129}) {
      const BoardGeometry geometry{.ranks = ranks,
                                   .announce_bytes = 100,
                                   .decision_bytes = 65,
                                   .entries = entries,
                                   .arena_bytes = entries % 3 * 4096};
      auto memory = *SharedMemory::create_heap(Board::size_of(geometry));
      const BoardSections s = lay_out(geometry, memory->bytes().data());
      std::vector<std::pair<const void*, std::size_t>> parts{
          {s.header, sizeof *s.header},
          {s.failure, sizeof *s.failure},
          {s.ready, sizeof *s.ready},
          {s.ready_slots.data(), s.ready_slots.size_bytes()},
          {s.doorbells.data(), s.doorbells.size_bytes()},
          {s.presence.data(), s.presence.size_bytes()},
          {s.announce_writers.data(), s.announce_writers.size_bytes()},
          {s.announce_readers.data(), s.announce_readers.size_bytes()},
          {s.announce_rings.data(), s.announce_rings.size_bytes()},
          {s.decision_writer, sizeof *s.decision_writer},
          {s.decision_readers.data(), s.decision_readers.size_bytes()},
          {s.decision_ring.data(), s.decision_ring.size_bytes()},
          {s.arrival.data(), s.arrival.size_bytes()},
          {s.arrived.data(), s.arrived.size_bytes()},
          {s.tuning, sizeof *s.tuning},
          {s.slot_words.data(), s.slot_words.size_bytes()},
          {s.slot_buffers.data(), s.slot_buffers.size_bytes()}};
      if (!s.arenas.empty()) parts.emplace_back(s.arenas.data(), s.arenas.size_bytes());
      EXPECT_EQ(s.arenas.size(), static_cast<std::size_t>(geometry.arena_bytes * ranks));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(s.arenas.data()) % 4096, 0U);
      const std::byte* end = memory->bytes().data();
      for (const auto& [begin, size] : parts) {
        EXPECT_GE(static_cast<const std::byte*>(begin), end);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % kCacheLinePair, 0U);
        end = static_cast<const std::byte*>(begin) + size;
      }
      EXPECT_LE(end, memory->bytes().data() + s.total);
      EXPECT_EQ(s.arrival.size(), static_cast<std::size_t>(entries));
      EXPECT_EQ(s.presence.size(), static_cast<std::size_t>(ranks));
    }
  }
}

TEST(Board, RefusesGeometriesThatCannotBe) {
  for (const BoardGeometry& bad :
       {small(0), small(-1), small(5000), small(2, -1), small(2, std::int64_t{1} << 40),
        BoardGeometry{.ranks = 1, .announce_bytes = 0},
        BoardGeometry{.ranks = 1, .arena_bytes = -4096},
        BoardGeometry{.ranks = 1, .arena_bytes = 4097},
        BoardGeometry{.ranks = 1, .arena_bytes = std::int64_t{1} << 41},
        BoardGeometry{.ranks = 1, .decision_bytes = std::int64_t{1} << 40}}) {
    EXPECT_EQ(Board::check_geometry(bad).code(), Code::kInvalidArgument);
  }
  auto memory = *SharedMemory::create_heap(Bytes(4096));
  EXPECT_EQ(Board::format(*memory, small(2)).code(), Code::kInvalidArgument);
}

TEST(Board, AttachRefusesWhatIsNoBoard) {
  const BoardGeometry geometry = small(2);
  auto fds = *make_event_fds(2);
  auto memory = *SharedMemory::create_heap(Board::size_of(geometry));
  const auto why = [&](std::int32_t rank, const EventFds& with) {
    return Board::attach(memory, rank, with).status().message();
  };
  EXPECT_NE(why(0, fds).find("first word"), std::string::npos);
  ASSERT_TRUE(Board::format(*memory, geometry).ok());
  EXPECT_TRUE(Board::attach(memory, 1, fds).ok());
  EXPECT_NE(why(2, fds).find("rank 2 does not exist"), std::string::npos);
  EXPECT_NE(why(-1, fds).find("rank -1 does not exist"), std::string::npos);
  EXPECT_NE(why(0, *make_event_fds(1)).find("eventfds"), std::string::npos);
  EXPECT_NE(why(0, nullptr).find("eventfds"), std::string::npos);

  auto* header = reinterpret_cast<BoardHeader*>(memory->bytes().data());
  header->version = kBoardVersion + 1;
  EXPECT_NE(why(0, fds).find("version"), std::string::npos);
  header->version = kBoardVersion;
  header->geometry.entries = 1 << 20;
  EXPECT_NE(why(0, fds).find("shorter"), std::string::npos);
  header->geometry.ranks = -7;
  EXPECT_NE(why(0, fds).find("ranks -7"), std::string::npos);
  auto tiny = *SharedMemory::create_heap(Bytes(8));
  EXPECT_FALSE(Board::attach(tiny, 0, fds).ok());
}

// Tells whether the mapping that holds `address` has the flag "dd": left out of core dumps.
bool is_left_out_of_core_dumps(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto wanted = reinterpret_cast<std::uintptr_t>(address);
      here = begin <= wanted && wanted < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return line.find(" dd") != std::string::npos;
    }
  }
  return false;
}

// A core dump with arenas in it would make every page of them real: gigabytes.
TEST(Board, ArenasAreInNoCoreDump) {
  for (const bool heap : {true, false}) {
    auto geometry = small(2);
    geometry.arena_bytes = 1 << 20;
    const auto boards = make_boards(geometry, heap);
    EXPECT_TRUE(is_left_out_of_core_dumps(boards[0].arena(0).data()));
    EXPECT_TRUE(is_left_out_of_core_dumps(boards[1].arena(1).data() + (1 << 20) - 1));
    EXPECT_TRUE(is_left_out_of_core_dumps(boards[0].slot_buffers()));
    EXPECT_FALSE(is_left_out_of_core_dumps(&geometry));
  }
}

// How many bytes of this memory have pages.
std::size_t resident(std::span<const std::uint64_t> words) {
  const std::size_t page = static_cast<std::size_t>(::getpagesize());
  const auto begin = reinterpret_cast<std::uintptr_t>(words.data()) / page * page;
  const std::size_t size = reinterpret_cast<std::uintptr_t>(words.data() + words.size()) - begin;
  std::vector<unsigned char> pages((size + page - 1) / page);
  EXPECT_EQ(::mincore(reinterpret_cast<void*>(begin), size, pages.data()), 0);
  return page * static_cast<std::size_t>(std::count_if(
                    pages.begin(), pages.end(), [](unsigned char one) { return (one & 1) != 0; }));
}

// The marks take ranks times entries words, 1 GiB at 128 ranks and 2^20 entries. The
// leader, which formats the board, leaves them to the ranks that write them.
TEST(Board, R24TheMarksOfArrivalsHaveNoPagesUntilARankWritesThem) {
  // Where the kernel gives huge pages to everything, each touch takes one.
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const BoardGeometry geometry = small(64, 1 << 18);
  for (const bool heap : {true, false}) {
    auto memory = heap ? *SharedMemory::create_heap(Board::size_of(geometry))
                       : *SharedMemory::create_memfds(Board::parts_of(geometry));
    const auto arrived = lay_out(geometry, memory->bytes().data()).arrived;
    ASSERT_EQ(arrived.size_bytes(), std::size_t{256} << 20);
    ASSERT_TRUE(Board::format(*memory, geometry).ok());
    EXPECT_LE(resident(arrived), 2 * kHugePage);
    const auto fds = make_event_fds(geometry.ranks);
    const Board last = *Board::attach(memory, 63, *fds);
    EXPECT_FALSE(last.has_arrived(63, 5, 0));
    last.mark_arrived(5, 7);
    EXPECT_TRUE(last.has_arrived(63, 5, 7));
    const auto row = arrived.subspan(63 * arrived.size() / 64, 16);
    EXPECT_GT(resident(row), 0U);
    EXPECT_LE(resident(arrived), 3 * kHugePage);
  }
}

TEST(BoardDeathTest, BrokenRulesAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto boards = make_boards(small(2, 2));
  ASSERT_EQ(boards[0].arrive(0, 0, 1), Arrival::kLast);
  EXPECT_DEATH((void)boards[0].arrive(0, 0, 1), "arrives once");
  EXPECT_DEATH(boards[0].reset(0, 0, 2), "only a complete entry");
  EXPECT_DEATH((void)boards[0].arrive(2, 0, 1), "an entry of this board");
  EXPECT_DEATH((void)boards[0].doorbell(2), "a rank of this board");
}

TEST(Board, ReadyEntriesComeOutOnceInOrder) {
  const auto boards = make_boards(small(2, 3));
  EXPECT_FALSE(boards[0].pop_ready().has_value());
  for (int round = 0; round < 10; ++round) {
    boards[1].push_ready(2);
    boards[0].push_ready(0);
    boards[1].push_ready(1);  // the queue is full now
    EXPECT_EQ(boards[0].pop_ready(), 2);
    EXPECT_EQ(boards[0].pop_ready(), 0);
    boards[1].push_ready(2);
    EXPECT_EQ(boards[0].pop_ready(), 1);
    EXPECT_EQ(boards[0].pop_ready(), 2);
    EXPECT_FALSE(boards[0].pop_ready().has_value());
  }
  EXPECT_FALSE(make_boards(small(1, 0))[0].pop_ready().has_value());
}

TEST(Board, SlowRanksMayPutAnEntryIntoTheQueueOnceMore) {
  const auto boards = make_boards(small(2, 1));
  for (int i = 0; i < 3; ++i) boards[1].push_ready(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(boards[0].pop_ready(), 0);
  EXPECT_FALSE(boards[0].pop_ready().has_value());
}

// One step of the control plane as the runtime drives it: every rank arrives for every entry, the
// last one queues the entry and rings the coordinator, which resets it and sends all ranks a
// decision.
bool steady_rank(const Board& board, std::uint32_t steps) {
  const std::int64_t entries = board.geometry().entries;
  const auto ranks = static_cast<std::uint32_t>(board.ranks());
  const Doorbell bell = board.doorbell(board.rank());
  const bool coordinator = board.rank() == 0;
  StreamWriter writer = board.decision_writer();
  StreamReader reader = board.decision_reader();
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::int64_t i = 0; i < entries; ++i) {
      const std::int64_t entry = (i * 7 + board.rank() * 3 + step) % entries;  // any order
      const Arrival arrival = board.arrive(entry, 0, ranks);
      if (arrival == Arrival::kStale) return false;
      if (arrival == Arrival::kLast) {
        board.push_ready(entry);
        board.doorbell(0).ring();
      }
    }
    std::int64_t done = 0;
    while (done < entries) {
      const std::uint64_t seen = bell.rings();
      bool any = false;
      while (coordinator) {
        const auto entry = board.pop_ready();
        if (!entry.has_value()) break;
        board.reset(*entry, 0, ranks);
        std::byte bytes[sizeof(std::int64_t)];
        std::memcpy(bytes, &*entry, sizeof bytes);
        if (!writer.post(bytes).ok()) return false;
      }
      if (coordinator && !writer.flush().ok()) return false;
      if (writer.take_added()) board.ring_all();
      for (;;) {
        const auto message = reader.poll();
        if (!message.ok()) return false;
        if (!message->has_value()) break;
        ++done;
        any = true;
      }
      if (any || done == entries) continue;
      bell.arm();
      pollfd entry{bell.event_fd(), POLLIN, 0};
      if (bell.rings() == seen && ::poll(&entry, 1, kHangMs) != 1) return false;
      bell.drain();
      bell.disarm();
    }
  }
  // Decisions that the others need may still wait for room.
  while (coordinator && writer.backlog().value() > 0) {
    const std::uint64_t seen = bell.rings();
    if (!writer.flush().ok()) return false;
    if (writer.take_added()) board.ring_all();
    if (writer.backlog().value() == 0) break;
    bell.arm();
    pollfd entry{bell.event_fd(), POLLIN, 0};
    if (bell.rings() == seen && ::poll(&entry, 1, kHangMs) != 1) return false;
    bell.drain();
    bell.disarm();
  }
  return true;
}

TEST(Board, SteadyStepsWithThreadsAsRanks) {
  for (const std::int32_t ranks : {1, 2, 5, 8}) {
    const auto boards = make_boards(small(ranks, 40));
    std::vector<std::thread> threads;
    std::atomic<int> good{0};
    for (const Board& board : boards) {
      threads.emplace_back([&] { good += steady_rank(board, 100) ? 1 : 0; });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(good.load(), ranks);
  }
}

TEST(Board, SteadyStepsWithProcessesAsRanks) {
  for (const std::int32_t ranks : {2, 4}) {
    const auto boards = make_boards(small(ranks, 40), /*heap=*/false);
    run_processes(ranks, [&](std::int32_t rank) {
      return steady_rank(boards[static_cast<std::size_t>(rank)], 100);
    });
  }
}

// Generations are closed while ranks arrive: the count of each is the number of calls of arrive()
// that did not return kStale.
TEST(Board, ClosingRacesWithArrivals) {
  constexpr std::uint32_t kGenerations = 2000;
  constexpr std::int32_t kRanks = 4;
  const auto boards = make_boards(small(kRanks, 1));
  std::vector<std::atomic<std::uint32_t>> told(kGenerations + 1);
  std::vector<std::thread> threads;
  for (std::int32_t rank = 1; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const Board& board = boards[static_cast<std::size_t>(rank)];
      for (std::uint32_t mine = 0; mine < kGenerations;) {
        if (board.arrive(0, mine, kRanks) != Arrival::kStale) ++told[mine];
        while (board.arrival(0).generation == mine) std::this_thread::yield();
        mine = board.arrival(0).generation;
      }
    });
  }
  std::vector<std::uint32_t> counted(kGenerations, 0);
  for (std::uint32_t generation = 0; generation < kGenerations; ++generation) {
    // The closer waits for some arrivals in some generations, and for none in others.
    while (boards[0].arrival(0).count < generation % kRanks) std::this_thread::yield();
    counted[generation] = boards[0].close_generation(0, generation + 1);
  }
  for (auto& thread : threads) thread.join();
  for (std::uint32_t generation = 0; generation < kGenerations; ++generation) {
    ASSERT_EQ(counted[generation], told[generation].load()) << generation;
  }
}

TEST(Board, AnnouncementsOfAllRanksReachTheCoordinator) {
  constexpr std::int32_t kRanks = 4;
  constexpr int kMessages = 500;
  const auto boards = make_boards(small(kRanks));
  std::vector<std::thread> threads;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      StreamWriter writer = boards[static_cast<std::size_t>(rank)].announce_writer();
      for (int n = 0; n < kMessages; ++n) {
        const std::vector<std::byte> message(static_cast<std::size_t>(n), std::byte(rank));
        ASSERT_TRUE(writer.post(message).ok());
        while (!*writer.flush()) std::this_thread::yield();
      }
    });
  }
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    StreamReader reader = boards[0].announce_reader(rank);
    for (std::size_t n = 0; n < kMessages;) {
      const auto message = reader.poll();
      ASSERT_TRUE(message.ok());
      if (!message->has_value()) {
        std::this_thread::yield();
        continue;
      }
      ASSERT_EQ((*message)->size(), n);
      for (const std::byte byte : **message) ASSERT_EQ(byte, std::byte(rank));
      ++n;
    }
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace ronde::collectives
