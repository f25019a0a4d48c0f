// SPDX-License-Identifier: Apache-2.0
// The boards of simulated hosts: on the heap, and without descriptors to sleep on, since no rank of
// a simulation sleeps.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "collectives/board/board.h"

namespace ronde::testing {

// Makes the boards of all ranks of one host, by position.
inline std::vector<collectives::Board> make_memory_boards(
    const collectives::BoardGeometry& geometry) {
  const auto memory =
      collectives::SharedMemory::create_heap(collectives::Board::size_of(geometry)).value();
  const base::Status formatted = collectives::Board::format(*memory, geometry);
  base::check(formatted.ok(), "a board for a simulation");
  const auto nobody_sleeps = std::make_shared<const std::vector<base::FileDescriptor>>(
      base::narrow<std::size_t>(geometry.ranks));
  std::vector<collectives::Board> boards;
  for (std::int32_t position = 0; position < geometry.ranks; ++position) {
    boards.push_back(collectives::Board::attach(memory, position, nobody_sleeps).value());
  }
  return boards;
}

}  // namespace ronde::testing
