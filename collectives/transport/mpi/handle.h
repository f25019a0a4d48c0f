// SPDX-License-Identifier: Apache-2.0
// What the mpi_*.cc files share: the session's lock, and a communicator with the flag that ends all
// calls. The only header that includes mpi.h.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string>

#include "base/fork_mark.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collectives/transport/mpi/program.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::collectives {

// Ronde asks MPI for MPI_THREAD_SERIALIZED: any thread may call, but one at a time, whichever
// engine it belongs to. Every MPI call is made under this lock, but for the two that are always
// allowed (MPI_Initialized, MPI_Finalized).
base::Mutex& mpi_lock();

// Whether MPI has been started; an error once it has been finalised.
base::Result<bool> mpi_running();

base::Status forked_child();

// An engine's communicator, shared with its transports.
struct MpiHandle {
  MPI_Comm communicator = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int largest_tag = 0;
  int thread_level = MPI_THREAD_SINGLE;
  base::ForkMark owner;  // a forked child inherits the object, but not MPI
  std::atomic<bool> abandoned{false};

  // Whether MPI may be called with this communicator, and if not, why.
  [[nodiscard]] base::Status usable() const;
};

// Refuses a communicator of a program that was compiled with another MPI. nullptr is fine.
base::Status check_family(const ProgramCommunicator* program);
// The program's communicator, once its family is right and MPI runs; nullptr is MPI_COMM_WORLD.
// Refuses MPI_COMM_NULL and inter-communicators. Asks no other rank.
base::Result<MPI_Comm> handle_of(const ProgramCommunicator* program) RONDE_REQUIRES(mpi_lock());
// The other way round.
ProgramCommunicator program_communicator(MPI_Comm communicator);

// MPI's error code in MPI's own words.
base::Status mpi_error(int code, const std::string& doing,
                       std::source_location where = std::source_location::current())
    RONDE_REQUIRES(mpi_lock());

}  // namespace ronde::collectives
// NOLINTEND(bugprone-casting-through-void)
