// SPDX-License-Identifier: Apache-2.0
// In C++ a communicator is no options, and options are no communicator.
// says: no matching function|could not convert|cannot convert
#include <ronde/mpi.h>
#include <ronde/ronde.hpp>

int use(MPI_Comm communicator) {
#ifdef RIGHT
  return ronde::mpi::open(communicator).rank();
#else
  return ronde::mpi::open(&communicator).rank();
#endif
}
