// SPDX-License-Identifier: Apache-2.0
// An engine of Ronde behind one communicator and all others that join it.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

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

  // The numbers of the communicators of this engine, by which their tensors differ. The one that
  // has opened it has the first. Rank 0 takes the others and gives them back, and tells all ranks.
  static constexpr int kFirstNumber = 0;
  int take_number();
  void give_back(int number);

 private:
  explicit Engine(ronde_engine* engine) : engine_(engine) {}

  ronde_engine* engine_;
  std::mutex lock_;
  std::set<int> free_;  // of those below next_
  int next_ = kFirstNumber + 1;
};

}  // namespace ronde::mpi_allreduce
