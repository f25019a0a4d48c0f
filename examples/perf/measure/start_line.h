// SPDX-License-Identifier: Apache-2.0
// Where the ranks wait for each other before each iteration. A library's barrier releases ranks
// microseconds apart, and then the early ones measure how late the others are. On one host the
// ranks share a page instead and leave it within the time of a cache line's travel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ronde/ronde.hpp>

namespace ronde::perf {

// Thread safety: belongs to one thread of each rank.
class StartLine {
 public:
  // Collective. Where the ranks are on several hosts, or cannot map each other's memory, the line
  // is a barrier of the engine.
  explicit StartLine(Engine& engine);
  StartLine(const StartLine&) = delete;
  StartLine& operator=(const StartLine&) = delete;
  ~StartLine();

  // Returns when every rank has arrived. The watchdog ends the process if one never does.
  void wait();

 private:
  // Two cache lines apart: the processor fetches lines in pairs.
  struct alignas(128) Line {
    std::atomic<std::uint64_t> arrivals;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "the line is between processes");

  bool open(int creator, int descriptor);
  void arrive(bool may_yield);

  Engine& engine_;
  int rank_;
  int ranks_;
  bool oversubscribed_;
  std::size_t bytes_;
  Line* lines_ = nullptr;
  std::uint64_t arrivals_ = 0;
};

// Tells the processor that this thread spins.
void relax();
// Returns the number of cores that this process may use.
[[nodiscard]] int usable_cores();

}  // namespace ronde::perf
