// SPDX-License-Identifier: Apache-2.0
// Which threads use an engine, and whether all that have submitted are inside a wait: then the rank
// stands still until another rank, or a batch, goes on.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace ronde::runtime {

// How long a caller that waits in slices may do something else between two of them.
inline constexpr base::Nanoseconds kSliceGap = std::chrono::seconds(1);

// A thread is known by its number in the kernel, so that one that has ended can be told from one
// that does something else. (Where the kernel gives the number to a later thread, that one counts
// as one that has submitted.)
//
// Thread safety: every function may be called from any thread. Those that are called for each
// operation write words of the calling thread alone.
class Submitters {
  struct Thread;

 public:
  // of_job: those of the job, of a process set. What a thread does in the set it does there, too.
  explicit Submitters(Submitters* of_job = nullptr) : of_job_(of_job) {}

  // The calling thread submits something.
  void submitted();

  // The calling thread has waited for a work from `begin` to `end`; done: it has ended. What it
  // waits for in slices counts as one wait. And how long it has waited since `since`, as far as its
  // last waits tell.
  void has_waited(base::Instant begin, base::Instant end, const void* work, bool done);
  [[nodiscard]] base::Nanoseconds waited_since(base::Instant since);

  // The calling thread waits, until a work is done, as long as this lives. A wait that ends at a
  // time of its own is none, since the thread may submit afterwards.
  class Waiting {
   public:
    explicit Waiting(Submitters& submitters);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::array<Thread*, 2> threads_;  // in the set and in the job; nullptr: there is none
  };
  // The calling thread waits, and will go on to do so by `until` at the latest, unless the work is
  // done before: for callers that look at something else every so often.
  void waits_until(base::Instant until);
  void waits_no_more() { waits_until(base::Instant{}); }

  struct Look {
    // Some thread waits, and none that has submitted does anything else.
    bool still = false;
    // Counts what threads have submitted and waited for: where it is that of an earlier look,
    // nothing has happened in between.
    std::uint64_t moves = 0;
  };
  [[nodiscard]] Look look(base::Instant now) const;

 private:
  // More threads than that at a time make that nobody knows whether the rank stands still.
  static constexpr std::size_t kMostThreads = 64;
  struct Thread {
    std::atomic<std::int32_t> number{0};  // 0: free
    std::atomic<bool> submits{false};
    std::atomic<std::int32_t> waits{0};
    std::atomic<std::int64_t> waits_until{0};
    std::atomic<std::uint64_t> moves{0};
    // Its last waits; the thread alone reads and writes them, but a place may go to another one.
    struct Wait {
      std::atomic<std::int64_t> begin{0};
      std::atomic<std::int64_t> end{0};
    };
    std::array<Wait, 4> last_waits;
    std::atomic<std::size_t> next_wait{0};
    std::atomic<const void*> unfinished{nullptr};  // for which it waited last

    // Its thread alone writes these: two plain moves, where an addition in one would lock.
    void move() {
      moves.store(moves.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    void wait(std::int32_t more) {
      waits.store(waits.load(std::memory_order_relaxed) + more, std::memory_order_release);
    }
  };
  // The calling thread's; nullptr: there is no room for it.
  Thread* own();
  Thread* place(std::int32_t number);

  Submitters* const of_job_;
  std::array<Thread, kMostThreads> threads_;
  std::atomic<bool> full_{false};
};

}  // namespace ronde::runtime
