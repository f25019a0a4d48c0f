// SPDX-License-Identifier: Apache-2.0
// An engine of Ronde behind one communicator and all others that join it.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "bindings/mpi/call_table.h"

namespace ronde::mpi_allreduce {

// Prints one line on standard error.
void say(const std::string& text);

// Prints and releases the error of a call of Ronde, and returns the code for MPI.
int report(ronde_error* error, const char* call);

// The smallest value of all ranks. As many ranks call it as wait for each other anyway.
std::int64_t smallest(std::int64_t mine, MPI_Comm communicator);

// Thread safety: any thread.
class Engine {
 public:
  // Opens an engine with all ranks of the communicator, whose number is `size`; on every rank or on
  // none, and then `reason` says why, as far as this rank knows.
  static std::unique_ptr<Engine> open(MPI_Comm communicator, int size, std::string& reason);

  // Closes the engine; for good. All ranks call it.
  void close();
  [[nodiscard]] bool is_open() const { return engine_ != nullptr; }
  [[nodiscard]] ronde_engine* get() const { return engine_; }

  // What each rank is in; nullptr where the ranks have no memory for that, as over several hosts.
  [[nodiscard]] CallTable* calls() const { return calls_.get(); }

  // The numbers of the communicators of this engine, by which their tensors differ. The one that
  // has opened it has the first. Rank 0 takes the others and gives them back, and tells all ranks.
  // With a number comes how many calls it has seen: those of a communicator before meet no others.
  static constexpr int kFirstNumber = 0;
  std::array<std::int64_t, 2> take_number();
  void give_back(int number, std::int64_t calls);

 private:
  Engine(ronde_engine* engine, std::unique_ptr<CallTable> calls)
      : engine_(engine), calls_(std::move(calls)) {}

  ronde_engine* engine_;
  const std::unique_ptr<CallTable> calls_;
  std::mutex lock_;
  std::map<int, std::int64_t> free_;  // of those below next_, with their calls
  int next_ = kFirstNumber + 1;
};

}  // namespace ronde::mpi_allreduce
