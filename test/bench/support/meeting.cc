// SPDX-License-Identifier: Apache-2.0
// Ranks meet by counters of arrivals, which lie in shared memory.
#include "test/bench/support/meeting.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/process/cores.h"
#include "runtime/drive/idle.h"

namespace ronde::bench {

namespace {

constexpr int kPauses = 200;
constexpr std::chrono::seconds kLongestWait{60};

std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

void relax(bool oversubscribed) {
  if (oversubscribed) {
    ::sched_yield();
  } else {
    runtime::cpu_relax();
  }
}

std::size_t Meeting::bytes_for(int ranks) {
  return sizeof(Words) * static_cast<std::size_t>(ranks);
}

Meeting::Meeting(std::byte* memory, int rank, int ranks)
    : words_(reinterpret_cast<Words*>(memory)),
      rank_(rank),
      ranks_(ranks),
      oversubscribed_(ranks > base::cores_of_masks({base::allowed_processors()})) {}

void Meeting::arrive(bool may_yield) {
  ++arrivals_;
  words_[rank_].arrivals.store(arrivals_, std::memory_order_seq_cst);
  for (int other = 0; other < ranks_; ++other) {
    const auto& theirs = words_[other].arrivals;
    Clock::time_point deadline{};
    for (int looks = 0; theirs.load(std::memory_order_acquire) < arrivals_; ++looks) {
      if (looks < kPauses || !may_yield) {
        runtime::cpu_relax();
        continue;
      }
      ::sched_yield();
      if (deadline == Clock::time_point{}) deadline = Clock::now() + kLongestWait;
      if (Clock::now() > deadline) {
        std::fprintf(stderr, "rank %d waited a minute for rank %d: it is gone or stuck\n", rank_,
                     other);
        ::_exit(1);
      }
    }
  }
}

void Meeting::line_up() {
  arrive(true);
  // A rank may have come out of sched_yield just now. All are awake: those who have a core of their
  // own gather once more without a system call, and leave together.
  if (!oversubscribed_) arrive(false);
}

double Meeting::longest(Clock::time_point begin, Clock::time_point end) {
  words_[rank_].begin_ns = nanoseconds(begin);
  words_[rank_].end_ns = nanoseconds(end);
  // Nobody writes again before the next line-up, which needs everybody who still reads.
  line_up();
  std::int64_t first = words_[0].begin_ns;
  std::int64_t last = words_[0].end_ns;
  for (int rank = 1; rank < ranks_; ++rank) {
    first = std::min(first, words_[rank].begin_ns);
    last = std::max(last, words_[rank].end_ns);
  }
  constexpr double kPerSecond = 1e9;
  return static_cast<double>(last - first) / kPerSecond;
}

std::uint64_t Meeting::sum(std::uint64_t value) {
  words_[rank_].value = value;
  line_up();
  std::uint64_t total = 0;
  for (int rank = 0; rank < ranks_; ++rank) total += words_[rank].value;
  // The next call may follow without a line-up between.
  line_up();
  return total;
}

}  // namespace ronde::bench
