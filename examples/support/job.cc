// SPDX-License-Identifier: Apache-2.0
// Which rank prints an error, and in which order the ranks end.
#include "examples/support/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "bindings/trainer/tensor/errors.h"
#include "examples/support/command_line.h"

namespace ronde::examples {

namespace {

// Returns the rank that mpirun put into the environment, for use before an engine opens. Empty
// without mpirun.
std::string rank_of_environment() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? "" : rank;
}

// Writes the whole line at once, so that the lines of ranks do not mix.
void print_error(const std::string& name, const std::string& rank, const std::string& message) {
  std::fflush(stdout);
  const std::string where = rank.empty() ? ": " : ": rank " + rank + ": ";
  std::fputs((name + where + message + "\n").c_str(), stderr);
  std::fflush(stderr);
}

[[noreturn]] void exit_now(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

// Before the ranks know each other they cannot agree on who prints. An error that all of them have
// is rank 0's to print, and mpirun ends the others while they wait here; an error that rank 0 does
// not have is still printed.
int fail_before_job(const std::string& name, const std::string& message, int code) {
  const std::string rank = rank_of_environment();
  const bool others_first = !rank.empty() && rank != "0";
  if (others_first) std::this_thread::sleep_for(std::chrono::seconds(2));
  print_error(name, others_first ? rank : "", message);
  return code;
}

// Every rank calls this with the same error. None leaves before all have printed: mpirun kills the
// rest of a job when the first rank fails.
[[noreturn]] void fail_together(const std::string& name, Engine& engine, int rank,
                                const trainer::AgreedError& error) {
  if (error.speaker() == trainer::AgreedError::kEveryRank || error.speaker() == rank) {
    print_error(name, std::to_string(rank), error.what());
  }
  try {
    engine.barrier_blocking("examples/failed");
  } catch (const std::exception&) {
    exit_now(error.exit_code());  // the message is out, which is all that matters now
  }
  exit_now(error.exit_code());
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& program) {
  try {
    return program();
  } catch (const UsageError& error) {
    return fail_before_job(name, error.what(), kExitUsage);
  } catch (const std::exception& error) {
    return fail_before_job(name, error.what(), trainer::exit_code_of(error));
  }
}

int run_rank(const std::string& name, const trainer::Flags& flags,
             const std::function<int(Engine&)>& work) {
  Engine engine;
  const int rank = engine.rank();  // a closed engine cannot be asked
  try {
    trainer::EngineReplica replica(engine);
    trainer::require_same_flags(replica, flags);
    const int exit_code = work(engine);
    engine.close();
    return exit_code;
  } catch (const trainer::AgreedError& error) {
    fail_together(name, engine, rank, error);
  } catch (const std::exception& error) {
    print_error(name, std::to_string(rank), error.what());
    exit_now(trainer::exit_code_of(error));
  }
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

}  // namespace ronde::examples
