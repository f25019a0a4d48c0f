// SPDX-License-Identifier: Apache-2.0
// A rank that opens an engine, reduces a vector and closes the engine, in jobs where one of the
// ranks strikes meanwhile: it sends itself a signal at a given moment. Moments of the start are
// recognised by calls of MPI's functions, in whose place this program puts its own. Each rank
// writes its report into a file of its own.
//
// usage: start_worker folder=DIR victim=RANK signal=N after=N|at=close|at=closing
//        start_worker folder=DIR [level=LEVEL]
// after: so many collectives of the start have finished for the victim. 0: none has begun, but MPI
// has been started. at=close: the others close their engines, the victim is about to. at=closing:
// the victim closes its own as well, and strikes a moment later, while the first of the others
// waits.
// Without a victim every rank starts MPI itself, for LEVEL (single, funneled, serialized or
// multiple), and reports whether anything of Ronde's listens once the engine is open.
#include <mpi.h>
#include <sys/socket.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "test/support/words.h"

namespace {

using ronde::testing::now_ns;
using Clock = std::chrono::steady_clock;

constexpr int kExitFailedJob = 3;
// How long the others need to begin closing.
constexpr auto kUntilClosing = std::chrono::milliseconds(200);
constexpr auto kUntilAllInMpi = std::chrono::seconds(30);
constexpr auto kUntilCut = std::chrono::seconds(30);
constexpr auto kUntilAllHaveReported = std::chrono::seconds(10);

struct Settings {
  std::string folder;
  int victim = -1;
  int after = 0;
  std::string at = "start";
  int signal = SIGKILL;
  int level = MPI_THREAD_MULTIPLE;
};

// It is global, because MPI's functions have no argument for it.
Settings& settings() {
  static Settings all;
  return all;
}

int from_mpirun(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw std::runtime_error("start it with mpirun");
  return std::stoi(text);
}

int own_rank() { return from_mpirun("OMPI_COMM_WORLD_RANK"); }

void write_file(const std::string& name, const std::string& content) {
  ronde::testing::write_file(settings().folder + "/" + name, content);
}

void wait_for_file(const std::string& name, Clock::time_point limit) {
  while (!std::ifstream(settings().folder + "/" + name) && Clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A rank that is still starting MPI when the victim goes may hang in MPI itself, or be late enough
// to be blamed in the victim's place. So the victim of the first moment waits until all are there.
void wait_for_all_in_mpi() {
  write_file("rank-" + std::to_string(own_rank()) + ".mpi", "started\n");
  const bool strikes_now = settings().at == "start" && settings().after == 0;
  if (!strikes_now || settings().victim != own_rank()) return;
  const auto limit = Clock::now() + kUntilAllInMpi;
  for (int rank = 0; rank < from_mpirun("OMPI_COMM_WORLD_SIZE"); ++rank) {
    wait_for_file("rank-" + std::to_string(rank) + ".mpi", limit);
  }
}

// The victim calls it.
void strike() {
  write_file("struck", std::to_string(now_ns()) + "\n");
  ::kill(::getpid(), settings().signal);
  // Without a signal the test cuts this host's line, and says so when it is cut.
  if (settings().signal == 0) wait_for_file("struck.cut", Clock::now() + kUntilCut);
}

// The victim calls it at that moment of the start.
void strike_after(int collectives) {
  const bool here = settings().at == "start" && collectives == settings().after;
  if (here && own_rank() == settings().victim) strike();
}

// The others close meanwhile.
void close(ronde::Engine& engine) {
  const bool victim = own_rank() == settings().victim;
  std::thread striker;
  if (settings().at == "close" && victim) {
    std::this_thread::sleep_for(kUntilClosing);
    strike();
  } else if (settings().at == "closing") {
    // Another rank closes last, so that the victim is still closing.
    if (own_rank() == (settings().victim == 0 ? 1 : 0)) {
      wait_for_file(settings().signal == 0 ? "struck.cut" : "struck", Clock::now() + kUntilCut);
      std::this_thread::sleep_for(kUntilClosing);
    }
    if (victim) {
      striker = std::thread([] {
        std::this_thread::sleep_for(kUntilClosing);
        strike();
      });
    }
  }
  engine.close();
  if (striker.joinable()) striker.join();
}

int level_of(const std::string& name) {
  constexpr std::array levels{"single", "funneled", "serialized", "multiple"};
  const auto* const found = std::find(levels.begin(), levels.end(), name);
  if (found == levels.end()) throw std::invalid_argument("level=" + name);
  return static_cast<int>(found - levels.begin());  // as the MPIs number them
}

// The sockets of this process that listen.
int listeners() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0) count += listens;
  }
  return count;
}

// mpirun kills the other ranks as soon as one has failed, so each waits until all have reported.
void report(const std::string& verdict) {
  write_file("rank-" + std::to_string(own_rank()) + ".verdict", verdict);
  if (settings().victim >= 0) return;
  const auto limit = Clock::now() + kUntilAllHaveReported;
  for (int rank = 0; rank < from_mpirun("OMPI_COMM_WORLD_SIZE"); ++rank) {
    wait_for_file("rank-" + std::to_string(rank) + ".verdict", limit);
  }
}

void parse(int argc, char** argv) {
  using Value = const std::string&;
  Settings& all = settings();
  ronde::testing::read_words(argc, argv,
                             {{"folder", [&](Value value) { all.folder = value; }},
                              {"victim", [&](Value value) { all.victim = std::stoi(value); }},
                              {"after", [&](Value value) { all.after = std::stoi(value); }},
                              {"at", [&](Value value) { all.at = value; }},
                              {"signal", [&](Value value) { all.signal = std::stoi(value); }},
                              {"level", [&](Value value) { all.level = level_of(value); }}});
}

int run() {
  const std::string mine = "rank-" + std::to_string(own_rank());
  write_file(mine + ".pid", std::to_string(::getpid()) + "\n");
  const bool unharmed = settings().victim < 0;
  int offered = 0;
  if (unharmed) MPI_Init_thread(nullptr, nullptr, settings().level, &offered);
  try {
    const int before = listeners();
    ronde::Engine engine;
    const int still = listeners() - before;
    for (int step = 0; step < 20; ++step) {
      std::vector<float> vector(1000, 1.0F);
      engine.allreduce_blocking("vector", std::span(vector), ronde::sum);
      if (vector.back() != static_cast<float>(engine.size())) throw std::runtime_error("wrong sum");
    }
    close(engine);
    report("status=done\nstill=" + std::to_string(still) + '\n');
    if (unharmed) MPI_Finalize();
    return 0;
  } catch (const ronde::Error& error) {
    report("failed_ns=" + std::to_string(now_ns()) +
           "\nstatus=" + ronde_status_name(error.status()) +
           "\nculprit=" + std::to_string(error.rank()) + "\ntext=" + error.what() + '\n');
    // A job that failed may not be able to end MPI together.
    if (unharmed) std::_Exit(kExitFailedJob);
    return kExitFailedJob;
  }
}

}  // namespace

// The collective of the start that is in progress.
std::atomic<MPI_Request>& under_way() {
  static std::atomic<MPI_Request> request = MPI_REQUEST_NULL;
  return request;
}

// Opening an engine begins with this call.
extern "C" [[gnu::visibility("default")]] int MPI_Comm_idup(MPI_Comm communicator,
                                                            MPI_Comm* duplicate,
                                                            MPI_Request* request) {
  wait_for_all_in_mpi();
  strike_after(0);
  const int error = PMPI_Comm_idup(communicator, duplicate, request);
  under_way() = *request;
  return error;
}

extern "C" [[gnu::visibility("default")]] int MPI_Iallgatherv(
    const void* mine, int count, MPI_Datatype type, void* all, const int* counts,
    const int* offsets, MPI_Datatype types, MPI_Comm communicator, MPI_Request* request) {
  const int error =
      PMPI_Iallgatherv(mine, count, type, all, counts, offsets, types, communicator, request);
  under_way() = *request;
  return error;
}

// Every collective of the start is waited for with this call, and messages as well.
extern "C" [[gnu::visibility("default")]] int MPI_Test(MPI_Request* request, int* done,
                                                       MPI_Status* status) {
  static std::atomic<int> ended = 0;
  const bool counts = *request != MPI_REQUEST_NULL && *request == under_way().load();
  const int error = PMPI_Test(request, done, status);
  if (counts && *done != 0) strike_after(++ended);
  return error;
}

int main(int argc, char** argv) {
  try {
    parse(argc, argv);
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "start_worker: %s\n", error.what());
    return 1;
  }
}
