// SPDX-License-Identifier: Apache-2.0
// Where the processes of a benchmark meet: a few words of shared memory. A barrier of a library
// lets ranks off microseconds apart, and then the early ones measure how late the others are; here
// they leave within a cache line's travel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ronde::bench {

using Clock = std::chrono::steady_clock;

// Tells the processor that this is a wait.
void relax(bool oversubscribed);

// Thread safety: belongs to one thread of each rank.
class Meeting {
 public:
  static std::size_t bytes_for(int ranks);

  // `memory`: shared by the ranks, zeroed, aligned to a page.
  Meeting(std::byte* memory, int rank, int ranks);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  // More ranks than cores: a wait must give its core away.
  [[nodiscard]] bool oversubscribed() const { return oversubscribed_; }

  // Returns when every rank has come. A rank that does not come within a minute ends the process.
  void line_up();

  // Collective, and a line-up: from the first rank's begin to the last rank's end, in seconds. The
  // processes of a host read the same clock.
  double longest(Clock::time_point begin, Clock::time_point end);
  // Collective, and a line-up.
  std::uint64_t sum(std::uint64_t value);

 private:
  // Two cache lines apart: the processor fetches lines in pairs.
  struct alignas(128) Words {
    std::atomic<std::uint64_t> arrivals;
    std::int64_t begin_ns;
    std::int64_t end_ns;
    std::uint64_t value;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "the words are between processes");

  void arrive(bool may_yield);

  Words* words_;
  int rank_;
  int ranks_;
  bool oversubscribed_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace ronde::bench
