// SPDX-License-Identifier: Apache-2.0
// A rank that opens an engine and closes it, in jobs where one of the ranks strikes meanwhile: it
// sends itself a signal at a given moment of the start, which is told by MPI's functions, since
// those of this program stand before MPI's own. What a rank saw goes into a file of its own.
//
// usage: start_worker folder=DIR victim=RANK after=N signal=N
// after: so many collectives of the start have ended for the victim. 0: none has begun, but MPI has
// been started.
#include <mpi.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <ronde/ronde.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "test/support/words.h"

namespace {

constexpr int kExitFailedJob = 3;
// Until a line is cut after the mark was left.
constexpr auto kUntilCut = std::chrono::milliseconds(200);

struct Settings {
  std::string folder;
  int victim = -1;
  int after = 0;
  int signal = SIGKILL;
};

// MPI's functions have no place for it.
Settings& settings() {
  static Settings all;
  return all;
}

int own_rank() {
  const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
  if (text == nullptr) throw std::runtime_error("start it with mpirun");
  return std::stoi(text);
}

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Readers look for the name, so it appears with all of its content.
void write_file(const std::string& name, const std::string& content) {
  const std::string path = settings().folder + "/" + name;
  std::ofstream(path + ".tmp") << content;
  std::rename((path + ".tmp").c_str(), path.c_str());
}

// At that moment, in the victim.
void strike_after(int collectives) {
  if (collectives != settings().after || own_rank() != settings().victim) return;
  write_file("struck", std::to_string(now_ns()) + "\n");
  ::kill(::getpid(), settings().signal);
  if (settings().signal == 0) std::this_thread::sleep_for(kUntilCut);
}

void parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto [key, value] = ronde::testing::key_and_value(word);
    if (key == "folder") {
      settings().folder = value;
    } else if (key == "victim") {
      settings().victim = std::stoi(value);
    } else if (key == "after") {
      settings().after = std::stoi(value);
    } else if (key == "signal") {
      settings().signal = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown word " + word);
    }
  }
}

int run() {
  const std::string mine = "rank-" + std::to_string(own_rank());
  write_file(mine + ".pid", std::to_string(::getpid()) + "\n");
  try {
    ronde::Engine engine;
    engine.close();
    write_file(mine + ".verdict", "status=done\n");
    return 0;
  } catch (const ronde::Error& error) {
    write_file(mine + ".verdict", "failed_ns=" + std::to_string(now_ns()) +
                                      "\nstatus=" + ronde_status_name(error.status()) +
                                      "\nculprit=" + std::to_string(error.rank()) +
                                      "\ntext=" + error.what() + '\n');
    return kExitFailedJob;
  }
}

}  // namespace

// Opening an engine begins with it.
extern "C" [[gnu::visibility("default")]] int MPI_Comm_idup(MPI_Comm communicator,
                                                            MPI_Comm* duplicate,
                                                            MPI_Request* request) {
  strike_after(0);
  return PMPI_Comm_idup(communicator, duplicate, request);
}

// Every collective of the start is waited for with it.
extern "C" [[gnu::visibility("default")]] int MPI_Test(MPI_Request* request, int* done,
                                                       MPI_Status* status) {
  static std::atomic<int> ended = 0;
  const int error = PMPI_Test(request, done, status);
  if (*done != 0) strike_after(++ended);
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
