// SPDX-License-Identifier: Apache-2.0
// The engines behind MPI_COMM_WORLD and its duplicates. Which calls they take over is decided by
// the order of the calls of a communicator alone, which MPI has all ranks keep: they decide alike.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/mpi/fitting.h"
#include "bindings/mpi/in_flight.h"

namespace ronde::mpi_allreduce {

// Prints one line on standard error.
void say(const std::string& text);

// Has MPI look at its messages once: a rank that waits in an MPI call must do so, or sends of other
// calls would stand still meanwhile.
void let_mpi_progress();

// How long a wait goes on between two looks of MPI at its messages.
inline constexpr std::int64_t kWaitNanoseconds = 200'000;

// Prints and releases the error of a call of Ronde, and returns the code for MPI.
int report(ronde_error* error, const char* call);

// What is known of one communicator.
//
// Thread safety: MPI has one thread at a time call collectives of a communicator.
class Communicator {
 public:
  explicit Communicator(MPI_Comm handle) : handle_(handle) {}

  // Opens the engine, once, together with all ranks: in a call that waits for all of them anyway.
  void open();
  [[nodiscard]] bool is_open() const { return engine_ != nullptr; }
  // A call that may not wait for the others has found no engine: the next one that may opens it.
  void want();
  [[nodiscard]] bool is_wanted() const { return wanted_; }
  // Closes the engine; for good.
  void close();

  // MPI_Allreduce. Returns MPI's code.
  int allreduce(const void* send, void* receive, int count, const Reduction& reduction);
  // Submits; the work is then waited for by requests.h.
  int submit(const void* send, void* receive, int count, const Reduction& reduction,
             InFlight& operation);
  // The operation in flight that was submitted so many calls ago that its name comes round; empty
  // where there is none.
  std::shared_ptr<InFlight>& next_slot();

 private:
  // Whether this rank can use its engine; asks no other rank.
  [[nodiscard]] bool usable() const;
  void introduce() const;
  ronde_status start(const std::string& name, const void* send, void* receive, int count,
                     const Reduction& reduction, std::uint64_t flags, ronde_work** work,
                     ronde_error** error);
  int fail(ronde_error* error, const char* call);

  MPI_Comm handle_;
  ronde_engine* engine_ = nullptr;
  bool tried_ = false;
  bool wanted_ = false;
  std::uint64_t started_ = 0;  // by submit()
  std::vector<std::shared_ptr<InFlight>> slots_;
};

// All communicators of this process, with what else MPI has once in a process.
//
// Thread safety: any thread.
class Communicators {
 public:
  // The one of this process, which is never destroyed: MPI may be finalised in a destructor.
  static Communicators& here();

  // The state of a duplicate of MPI_COMM_WORLD; nullptr for any other communicator. The other one
  // looks, and makes none.
  Communicator* of(MPI_Comm handle);
  Communicator* known(MPI_Comm handle);

  // MPI has begun, on all ranks: they compare the threshold, by which each decides alone.
  void agree();
  // From how many bytes on a reduction is taken over: RONDE_MPI_ALLREDUCE_BYTES.
  [[nodiscard]] std::int64_t threshold() const { return threshold_; }
  [[nodiscard]] bool any_wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }
  void count_wanted(int change) { wanted_.fetch_add(change, std::memory_order_relaxed); }
  // True for the first caller alone.
  bool first_to_speak() { return !spoken_.exchange(true); }

  // The communicator is being freed. All ranks call it.
  void close(const MPI_Comm* handle);
  // Closes every engine once all ranks are here: MPI ends.
  void close_all();

 private:
  Communicators();
  static int on_delete(MPI_Comm handle, int keyval, void* attribute, void* extra);
  static int on_end(MPI_Comm handle, int keyval, void* attribute, void* extra);
  int keyval();
  void forget(Communicator* communicator);

  std::int64_t threshold_ = 0;
  std::atomic<int> wanted_{0};
  std::atomic<bool> spoken_{false};
  std::mutex lock_;
  int keyval_ = MPI_KEYVAL_INVALID;
  std::vector<std::unique_ptr<Communicator>> all_;
};

}  // namespace ronde::mpi_allreduce
