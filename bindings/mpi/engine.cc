// SPDX-License-Identifier: Apache-2.0
// An engine is opened on every rank or on none.
#include "bindings/mpi/engine.h"

#include <ronde/mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

// Whether operations inside one host may call MPI, which they do where an algorithm is named.
bool algorithm_is_named() {
  const char* algorithm = std::getenv("RONDE_ALGORITHM");
  return algorithm != nullptr && *algorithm != '\0' && std::string_view(algorithm) != "auto";
}

// Whether this rank can use the engine; asks no other rank.
bool usable(const ronde_engine* engine) {
  // Inside a host Ronde calls no MPI. Between hosts its thread does, beside the program's.
  if (ronde_local_size(engine) == ronde_size(engine) && !algorithm_is_named()) return true;
  int level = MPI_THREAD_SINGLE;
  PMPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

}  // namespace

void say(const std::string& text) { std::fprintf(stderr, "ronde: %s\n", text.c_str()); }

int report(ronde_error* error, const char* call) {
  say(std::string(call) + ": " + ronde_error_message(error));
  ronde_error_release(error);
  return MPI_ERR_OTHER;
}

std::int64_t smallest(std::int64_t mine, MPI_Comm communicator) {
  std::int64_t all = 0;
  if (PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_MIN, communicator) != MPI_SUCCESS) return 0;
  return all;
}

std::unique_ptr<Engine> Engine::open(MPI_Comm communicator, int size, std::string& reason) {
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  ronde_engine_options_set_communicator(&options, communicator);
  ronde_engine* engine = nullptr;
  ronde_error* error = nullptr;
  bool fits = false;
  if (ronde_engine_open(&options, &engine, &error) != RONDE_OK) {
    reason = ronde_error_message(error);
    ronde_error_release(error);
    engine = nullptr;
  } else if (ronde_size(engine) != size) {
    reason = "RONDE_ALONE=1 (or RONDE_MPI=off)";
  } else {
    reason = "Ronde cannot serve this job without threads in MPI";
    fits = usable(engine);
  }
  if (smallest(fits ? 1 : 0, communicator) > 0) return std::unique_ptr<Engine>(new Engine(engine));
  if (engine != nullptr) ronde_engine_close(engine, nullptr);
  return nullptr;
}

void Engine::close() {
  if (engine_ == nullptr) return;
  ronde_error* error = nullptr;
  if (ronde_engine_close(engine_, &error) != RONDE_OK) report(error, "closing Ronde's engine");
  engine_ = nullptr;
}

int Engine::take_number() {
  const std::lock_guard lock(lock_);
  return free_.empty() ? next_++ : free_.extract(free_.begin()).value();
}

void Engine::give_back(int number) {
  const std::lock_guard lock(lock_);
  free_.insert(number);
}

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
