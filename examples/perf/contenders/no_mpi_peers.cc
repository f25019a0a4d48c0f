// SPDX-License-Identifier: Apache-2.0
// Replaces mpi_peers.cc in builds without MPI.
#include "examples/perf/contenders/mpi_peers.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

std::unique_ptr<MpiPeers> start_mpi_peers(const std::vector<std::string>& /*names*/) {
  throw UsageError(
      "--against mpi and mpi-best need a build with MPI (-DRONDE_WITH_MPI=ON); memcpy works here");
}

}  // namespace ronde::perf
