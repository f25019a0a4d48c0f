// SPDX-License-Identifier: Apache-2.0
// Which rank prints an error, and in which order the ranks end.
#include "bindings/trainer/program/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Returns the rank that mpirun put into the environment, for use before an engine opens. Empty
// without mpirun.
std::string rank_of_environment() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? "" : rank;
}

// Writes the whole line at once, so that the lines of ranks do not mix.
void print_error(const std::string& program, const std::string& rank, const std::string& message) {
  std::fflush(stdout);
  const std::string where = rank.empty() ? ": " : ": rank " + rank + ": ";
  std::fputs((program + where + message + "\n").c_str(), stderr);
  std::fflush(stderr);
}

[[noreturn]] void exit_now(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

// Every rank calls this with the same error. None leaves before all have printed: mpirun kills the
// rest of a job when the first rank fails.
[[noreturn]] void fail_together(const std::string& program, Engine& engine, int rank,
                                const AgreedError& error) {
  if (error.speaker() == AgreedError::kEveryRank || error.speaker() == rank) {
    print_error(program, std::to_string(rank), error.what());
  }
  try {
    engine.barrier_blocking("program/failed");
  } catch (const std::exception&) {
    exit_now(error.exit_code());  // the message is out, which is all that matters now
  }
  exit_now(error.exit_code());
}

int run_rank(const FlagTable& flags, const Body& body) {
  Engine engine;
  const int rank = engine.rank();  // a closed engine cannot be asked
  try {
    EngineReplica replica(engine);
    require_same_flags(replica, flags.values());
    const int exit_code = body(engine, replica);
    engine.close();
    return exit_code;
  } catch (const AgreedError& error) {
    fail_together(flags.program(), engine, rank, error);
  } catch (const std::exception& error) {
    print_error(flags.program(), std::to_string(rank), error.what());
    exit_now(exit_code_of(error));
  }
}

}  // namespace

// Before the ranks know each other they cannot agree on who prints. An error that all of them have
// is rank 0's to print, and mpirun ends the others while they wait here; an error that rank 0 does
// not have is still printed.
int report_errors(const std::string& program, const std::function<int()>& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const std::string rank = rank_of_environment();
    const bool others_first = !rank.empty() && rank != "0";
    if (others_first) std::this_thread::sleep_for(std::chrono::seconds(2));
    print_error(program, others_first ? rank : "", error.what());
    return exit_code_of(error);
  }
}

int run_program(int argc, char** argv, FlagTable& flags, const Body& body) {
  return report_errors(flags.program(),
                       [&] { return flags.parse(argc, argv) ? run_rank(flags, body) : 0; });
}

bool stderr_is_terminal() {
  if (isatty(STDERR_FILENO) != 0) return true;
  if (rank_of_environment().empty()) return false;
  // The parent process is mpirun, which forwards to its own standard error.
  const std::string forwarded = "/proc/" + std::to_string(getppid()) + "/fd/2";
  const int descriptor = open(forwarded.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool terminal = isatty(descriptor) != 0;
  close(descriptor);
  return terminal;
}

}  // namespace ronde::trainer
