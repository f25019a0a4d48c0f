// SPDX-License-Identifier: Apache-2.0
// What the sources of transport/mpi/ share: the session's lock, and a communicator with the flag
// that ends all calls. This header and roll_call.h alone bring in mpi.h.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string>

#include "base/mutex.h"
#include "base/process/fork_mark.h"
#include "base/status.h"
#include "collectives/transport/program.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::collectives {

// Ronde asks MPI for MPI_THREAD_SERIALIZED: any thread may call, but one at a time, whichever
// engine it belongs to. Every MPI call is made under this lock, but for the two that are always
// allowed (MPI_Initialized, MPI_Finalized).
base::Mutex& mpi_lock();

// Tells whether MPI has been started; fails once it has been finalised.
base::Result<bool> mpi_running();

// The error of a call after the program has finalised MPI.
base::Status finalized_too_early();

// The error of every call in a forked child.
base::Status forked_child();

// An engine's communicator; the engine shares the ownership with its ends.
//
// Thread safety: the fields but `abandoned` are set once, before the handle is shared.
struct MpiHandle {
  MPI_Comm communicator = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int largest_tag = 0;
  int thread_level = MPI_THREAD_SINGLE;
  base::ForkMark owner;  // a forked child inherits the object, but not MPI
  std::atomic<bool> abandoned{false};

  // Returns the reason if MPI may not be called with this communicator.
  [[nodiscard]] base::Status usable() const;
};

// Whose mpi.h this code is compiled with.
#if defined(OPEN_MPI)
inline constexpr MpiFamily kMpiFamily = MpiFamily::kOpenMpi;
#else
inline constexpr MpiFamily kMpiFamily = MpiFamily::kMpich;
#endif

// The program's communicator, once MPI runs; nullptr is MPI_COMM_WORLD. Its family has been
// checked. Refuses MPI_COMM_NULL and inter-communicators. Asks no other rank.
base::Result<MPI_Comm> handle_of(const ProgramCommunicator* program) RONDE_REQUIRES(mpi_lock());

// The error of an MPI call, in MPI's own words. `activity` is what the caller did: "starting MPI".
base::Status mpi_error(int code, const std::string& activity,
                       std::source_location where = std::source_location::current())
    RONDE_REQUIRES(mpi_lock());

}  // namespace ronde::collectives
// NOLINTEND(bugprone-casting-through-void)
