// SPDX-License-Identifier: Apache-2.0
// Ranks as processes on one machine, without MPI: forked before anybody has touched CUDA, they meet
// in shared memory.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace ronde::gpu_test {

// What the ranks share. Thread safety: one thread of each rank.
class Meeting {
 public:
  static constexpr std::size_t kMostBytes = 64 << 10;
  static constexpr int kMostRanks = 8;
  static constexpr std::chrono::seconds kLongest{60};

  static Meeting* make() {
    void* const memory =
        ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) Meeting;
  }

  // False: some rank has not come in time.
  bool meet(int size) {
    const int round = round_.load();
    if (come_.fetch_add(1) + 1 == size) {
      come_.store(0);
      round_.fetch_add(1);
      return true;
    }
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (round_.load() == round) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

  bool allgather(int rank, int size, const void* mine, std::size_t bytes, void* all) {
    if (bytes > kMostBytes) return false;
    std::memcpy(bytes_[rank], mine, bytes);
    if (!meet(size)) return false;
    for (int of = 0; of < size; ++of) {
      std::memcpy(static_cast<char*>(all) + static_cast<std::size_t>(of) * bytes, bytes_[of],
                  bytes);
    }
    return meet(size);
  }

 private:
  Meeting() = default;

  std::atomic<int> come_{0};
  std::atomic<int> round_{0};
  char bytes_[kMostRanks][kMostBytes] = {};
};

// Runs every rank in a process of its own, and kills what is left when time is over. A rank that is
// meant to die ends with kMeantToDie.
inline constexpr int kMeantToDie = 17;
inline bool run_ranks(int size, std::chrono::seconds longest,
                      const std::function<int(int rank, Meeting& meeting)>& work) {
  Meeting* const meeting = Meeting::make();
  if (meeting == nullptr) return false;
  std::fflush(nullptr);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int code = work(rank, *meeting);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ranks.push_back(child);
  }
  bool good = true;
  const auto end = std::chrono::steady_clock::now() + longest;
  for (const pid_t rank : ranks) {
    int status = 0;
    pid_t gone = 0;
    while ((gone = ::waitpid(rank, &status, WNOHANG)) == 0 &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (gone == 0) {
      std::printf("  a rank has not ended in time\n");
      ::kill(rank, SIGKILL);
      ::waitpid(rank, &status, 0);
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    good = good && (code == 0 || code == kMeantToDie);
  }
  ::munmap(static_cast<void*>(meeting), sizeof(Meeting));
  return good;
}

}  // namespace ronde::gpu_test
