// SPDX-License-Identifier: Apache-2.0
// A reduction between MPI_Iallreduce and the call that waits for it.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <mutex>

namespace ronde::mpi_allreduce {

// One reduction in flight. Thread safety: guarded by its lock.
struct InFlight {
  std::mutex lock;
  ronde_work* work = nullptr;
  MPI_Request request = MPI_REQUEST_NULL;
  bool done = false;
  int code = MPI_SUCCESS;  // once it is done
};

}  // namespace ronde::mpi_allreduce
