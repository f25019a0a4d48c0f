// SPDX-License-Identifier: Apache-2.0
// What this machine allows: the memory traffic of an allreduce with no runtime around it, beside
// memcpys of all ranks at the same time. A row of the benchmarks that this misses too is the
// machine's. It starts its ranks by itself: no MPI, no Ronde.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include "test/bench/support/floor_protocol.h"
#include "test/bench/support/meeting.h"
#include "test/bench/support/options.h"
#include "test/bench/support/report.h"
#include "test/bench/support/sampling.h"

namespace {

using namespace ronde::bench;  // NOLINT(google-build-using-namespace): this is its program

constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Zeroed, and the same in all processes that are forked afterwards.
std::byte* share(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // where the kernel has them; else it is as well
  return static_cast<std::byte*>(memory);
}

int run_rank(const Options& options, std::byte* memory, int rank) {
  Meeting meeting(memory, rank, options.ranks);
  Contenders contenders;
  add_floor(contenders, meeting, memory + round_up(Meeting::bytes_for(options.ranks)));
  add_memcpy(contenders, *std::max_element(options.sizes.begin(), options.sizes.end()));
  std::vector<Sample> all;
  for (const std::int64_t bytes : options.sizes) {
    const auto samples = measure(meeting, contenders, bytes, options.repetitions, options.quick);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  if (rank == 0) print(all, options.ranks, options.json);
  return any_wrong(all) ? 1 : 0;
}

int run_child(const Options& options, std::byte* memory, int rank) {
  try {
    return run_rank(options, memory, rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "floor: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

// The worst end of all children.
int wait_for_all() {
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;) {
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options =
      read_options(argc, argv, "What this machine allows, and concurrent memcpys.", true);
  const std::size_t bytes =
      round_up(Meeting::bytes_for(options.ranks)) + round_up(floor_bytes(options.ranks));
  std::byte* const memory = share(bytes);
  if (memory == nullptr) {
    std::perror("floor: no shared memory");
    return 1;
  }
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) {
      std::perror("floor: could not start a rank");
      return 1;  // the ranks that were started die with this process
    }
    if (child == 0) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) return 1;
      return run_child(options, memory, rank);
    }
  }
  return wait_for_all();
}
