// SPDX-License-Identifier: Apache-2.0
// A rank whose engine has nothing to do for a while, or waits for another host. It prints what that
// has cost.
//
// usage: idle_worker SECONDS
//        idle_worker waiting
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <ronde/ronde.hpp>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "test/e2e/mpi_calls/mpi_call_counter.h"

namespace {

// The processor time of all threads of this process, Ronde's and MPI's.
double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void some_steps(ronde::Engine& engine) {
  std::vector<float> small(10);
  std::vector<float> large(500'000);
  for (int step = 0; step < 5; ++step) {
    ronde::Work first = engine.allreduce("small", std::span(small));
    engine.allreduce("large", std::span(large)).wait();
    first.wait();
  }
  engine.barrier_blocking();
}

void run(double seconds) {
  ronde::Engine engine;
  some_steps(engine);
  // Waits until the last threads have gone to sleep too.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));

  const std::string before_idling = take_mpi_calls();
  const ronde_statistics before = engine.statistics();
  const double cpu_before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double cpu = cpu_seconds() - cpu_before;
  const ronde_statistics after = engine.statistics();
  const std::string calls = take_mpi_calls();

  some_steps(engine);
  const int rank = engine.rank();
  const std::string later = take_mpi_calls();
  engine.close();
  if (before_idling.empty()) throw std::runtime_error("MPI calls go uncounted");
  std::printf("rank %d idle: cpu=%.6f control=%llu batches=%llu wakes=%llu calls='%s' later='%s'\n",
              rank, cpu,
              static_cast<unsigned long long>(after.control_bytes - before.control_bytes),
              static_cast<unsigned long long>(after.batches - before.batches),
              static_cast<unsigned long long>(after.background_wakes - before.background_wakes),
              calls.c_str(), later.c_str());
}

// The bytes that the interfaces of this host have sent and received.
std::uint64_t bytes_of_interfaces() {
  std::uint64_t sum = 0;
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") != std::string::npos) continue;
    std::istringstream numbers(line.substr(colon + 1));
    std::uint64_t number = 0;
    for (int column = 0; column < 9 && numbers >> number; ++column) {
      if (column == 0 || column == 8) sum += number;
    }
  }
  return sum;
}

// Whether that process has been stopped.
bool is_stopped(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_ends = line.rfind(") ");
  return name_ends != std::string::npos && line.compare(name_ends + 2, 1, "T") == 0;
}

// The last rank stands still in the middle of an allreduce, so that the others wait for messages of
// it: they print what that costs in a second, once what could still move has come to rest.
void wait_for_one_that_stands_still() {
  constexpr auto kRest = std::chrono::milliseconds(300);
  ronde::Engine engine;
  some_steps(engine);
  std::vector<std::int64_t> pids(static_cast<std::size_t>(engine.size()));
  pids.at(static_cast<std::size_t>(engine.rank())) = ::getpid();
  engine.allreduce_blocking("pids", std::span(pids), ronde::sum);
  std::vector<float> data(16U << 20U, 1.0F);
  const std::uint64_t before = bytes_of_interfaces();
  ronde::Work work = engine.allreduce("data", std::span(data), ronde::sum);
  if (engine.rank() == engine.size() - 1) {
    while (bytes_of_interfaces() - before < 8U << 20U) {
      static_cast<void>(work.wait_for(std::chrono::milliseconds(1)));
    }
    ::kill(::getpid(), SIGSTOP);
  } else {
    const auto wakes = [&] { return engine.statistics().background_wakes; };
    const auto moved = [&] { return bytes_of_interfaces() - before; };
    // First something moves, then that rank stops, and then nothing moves any more.
    for (std::uint64_t last = 0; last != moved() || (!is_stopped(pids.back()) && !work.poll());) {
      last = moved();
      std::this_thread::sleep_for(kRest);
    }
    const double cpu_before = cpu_seconds();
    const std::uint64_t wakes_before = wakes();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::printf("rank %d waits: cpu=%.6f wakes=%llu ended=%d\n", engine.rank(),
                cpu_seconds() - cpu_before, static_cast<unsigned long long>(wakes() - wakes_before),
                work.poll() ? 1 : 0);
    // Every host of the test has the same processes.
    ::kill(static_cast<pid_t>(pids.back()), SIGCONT);
  }
  work.wait();
  if (data.back() != static_cast<float>(engine.size())) throw std::runtime_error("a wrong sum");
  engine.close();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string(argv[1]) == "waiting") {
      wait_for_one_that_stands_still();
      return 0;
    }
    if (argc != 2) throw std::invalid_argument("how many seconds?");
    run(std::stod(argv[1]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "idle_worker: %s\n", error.what());
    return 1;
  }
}
