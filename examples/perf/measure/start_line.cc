// SPDX-License-Identifier: Apache-2.0
// How ranks share a page, and the counters in it by which they arrive and leave.
#include "examples/perf/measure/start_line.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <span>
#include <string>
#include <thread>

namespace ronde::perf {

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

StartLine::StartLine(Engine& engine)
    : engine_(engine),
      rank_(engine.rank()),
      ranks_(engine.size()),
      oversubscribed_(engine.local_size() > usable_cores()),
      bytes_(sizeof(Line) * static_cast<std::size_t>(ranks_)) {
  // A file without a name, so that nothing is left behind whatever happens; the others reach it
  // through the descriptor of rank 0.
  std::array<std::int64_t, 2> owner{getpid(), -1};
  int descriptor = -1;
  if (rank_ == 0) {
    descriptor = memfd_create("ronde-perf", MFD_CLOEXEC);
    if (descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(bytes_)) == 0) {
      owner[1] = descriptor;
    }
  }
  engine.broadcast_blocking("perf/start-line/owner", std::span(owner), 0);
  const bool one_host = engine.local_size() == ranks_;
  std::int32_t mapped =
      one_host && owner[1] >= 0 && open(static_cast<int>(owner[0]), static_cast<int>(owner[1])) ? 1
                                                                                                : 0;
  engine.allreduce_blocking("perf/start-line/mapped", std::span(&mapped, 1), ronde::min);
  if (descriptor >= 0) close(descriptor);
  if (mapped == 0 && lines_ != nullptr) {
    munmap(lines_, bytes_);
    lines_ = nullptr;
  }
}

StartLine::~StartLine() {
  if (lines_ != nullptr) munmap(lines_, bytes_);
}

bool StartLine::open(int creator, int descriptor) {
  const std::string path = "/proc/" + std::to_string(creator) + "/fd/" + std::to_string(descriptor);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return false;
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
  close(own);
  if (memory == MAP_FAILED) return false;  // NOLINT(performance-no-int-to-ptr): the system's macro
  lines_ = static_cast<Line*>(memory);     // zero bytes are counters of 0
  return true;
}

void StartLine::arrive(bool may_yield) {
  constexpr int kPauses = 200;
  ++arrivals_;
  lines_[rank_].arrivals.store(arrivals_, std::memory_order_seq_cst);
  for (int other = 0; other < ranks_; ++other) {
    for (int looks = 0; lines_[other].arrivals.load(std::memory_order_acquire) < arrivals_;
         ++looks) {
      // With fewer cores than ranks a pause only keeps the core from a rank that has yet to arrive
      // or to leave, while the clock of another is already running.
      if (may_yield && (oversubscribed_ || looks > kPauses)) {
        sched_yield();
      } else {
        relax();
      }
    }
  }
}

void StartLine::wait() {
  if (lines_ == nullptr) {
    engine_.barrier_blocking("perf/start-line");
    return;
  }
  arrive(true);
  // A rank may just have returned from sched_yield. Now all are awake: ranks with cores of their
  // own gather once more without a system call, and leave together.
  if (!oversubscribed_) arrive(false);
}

}  // namespace ronde::perf
