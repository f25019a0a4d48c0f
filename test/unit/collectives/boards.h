// SPDX-License-Identifier: Apache-2.0
// Boards for tests: all ranks' views in one process, on either backing, and ranks as forked
// processes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <utility>
#include <vector>

#include "collectives/board/board.h"

namespace ronde::collectives {

// Long enough for any machine; only a lost wake-up waits for all of it.
inline constexpr int kHangMs = 20000;

inline BoardGeometry small(std::int32_t ranks, std::int64_t entries = 16) {
  return {.ranks = ranks, .announce_bytes = 256, .decision_bytes = 512, .entries = entries};
}

// The boards of all ranks, in one process. Holding the memory keeps format() and attach() apart.
inline std::vector<Board> make_boards(const BoardGeometry& geometry, bool heap = true) {
  auto memory = heap ? SharedMemory::create_heap(Board::size_of(geometry))
                     : SharedMemory::create_memfds(Board::parts_of(geometry));
  EXPECT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_TRUE(Board::format(**memory, geometry).ok());
  auto fds = make_event_fds(geometry.ranks);
  std::vector<Board> boards;
  for (std::int32_t rank = 0; rank < geometry.ranks; ++rank) {
    auto board = Board::attach(*memory, rank, *fds);
    EXPECT_TRUE(board.ok()) << board.status().to_string();
    boards.push_back(std::move(*board));
  }
  return boards;
}

// Runs body(rank) in a process for each rank; the exit codes must be 0.
inline void run_processes(std::int32_t ranks, const std::function<bool(std::int32_t)>& body) {
  std::vector<pid_t> children;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(body(rank) ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace ronde::collectives
