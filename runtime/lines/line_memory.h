// SPDX-License-Identifier: Apache-2.0
// Where the lines of prepared operations lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/arena.h"
#include "collectives/in_host/lines.h"
#include "runtime/tensors/board_buffer.h"

namespace ronde::runtime {

// The memory of lines that this rank, a leader, has made in its arena, for the job and its process
// sets. It gets it back once all ranks have let go.
//
// Thread safety: every function may be called from any thread.
class LineMemory {
 public:
  // How many operations may have lines at a time.
  static constexpr std::size_t kMost = 4096;

  LineMemory() = default;
  LineMemory(const LineMemory&) = delete;
  LineMemory& operator=(const LineMemory&) = delete;
  // A rank may still read what the others have posted in their last call when these have gone.
  ~LineMemory() {
    const base::MutexLock lock(mutex_);
    for (const Made& made : made_) {
      if (!made.lines.all_have_left()) made.buffer->keep();
    }
  }

  // Makes lines; returns where they lie in the arenas of the host, in bytes, or an error where
  // there is no room.
  base::Result<std::int64_t> make(const std::shared_ptr<BoardMemory>& memory,
                                  std::span<std::byte> arenas, std::int32_t ranks,
                                  std::size_t bytes) {
    using collectives::Lines;
    const base::MutexLock lock(mutex_);
    std::erase_if(made_, [](const Made& made) { return made.lines.all_have_left(); });
    if (made_.size() >= kMost) {
      return base::Status::error(base::Code::kOutOfMemory,
                                 std::to_string(kMost) + " operations have lines");
    }
    const base::Bytes size = Lines::size_of(ranks, bytes) + base::Bytes(kAlignment);
    RONDE_ASSIGN_OR_RETURN(auto buffer, BoardBuffer::allocate(memory, size));
    auto place = static_cast<std::size_t>(buffer->bytes().data() - arenas.data());
    place = (place + kAlignment - 1) / kAlignment * kAlignment;
    const Lines lines(arenas.subspan(place), ranks, bytes);
    lines.format();
    made_.push_back({std::move(buffer), lines});
    return base::narrow<std::int64_t>(place);
  }

 private:
  // Lines begin on a pair of cache lines, which is more than an arena gives.
  static constexpr std::size_t kAlignment = 2 * collectives::Arena::kAlignment;
  struct Made {
    std::unique_ptr<BoardBuffer> buffer;
    collectives::Lines lines;
  };
  base::Mutex mutex_;
  std::vector<Made> made_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
