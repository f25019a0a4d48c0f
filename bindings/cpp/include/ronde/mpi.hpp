// SPDX-License-Identifier: Apache-2.0
// Engines over a communicator of the program's. Not included by ronde.hpp, since it needs mpi.h;
// <ronde/mpi.h> includes it in C++20.
//
//   ronde::Engine engine = ronde::mpi::open(communicator);
#pragma once

#include <ronde/mpi.h>

#include <ronde/engine.hpp>

namespace ronde::mpi {

// Joins the job of the ranks of `communicator`, an intra-communicator of the MPI that libronde.so
// was built with. It is duplicated, stays the caller's, and may go when this has returned. Blocks
// until every rank of it has opened its engine, at most RONDE_START_TIMEOUT_SECONDS. `options` were
// initialised with ronde_engine_options_init.
// Throws Error: the codes of ronde_engine_open. Thread safety: any thread that may call MPI.
[[nodiscard]] inline Engine open(MPI_Comm communicator, ronde_engine_options options) {
  ronde_engine_options_set_communicator(&options, communicator);
  return Engine(options);
}
[[nodiscard]] inline Engine open(MPI_Comm communicator) {
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  return open(communicator, options);
}

}  // namespace ronde::mpi
