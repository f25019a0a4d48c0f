// SPDX-License-Identifier: Apache-2.0
// The MPI session of a build without MPI: a job of one rank works, and for a job of several the
// calls fail with the reason. It is the twin of mpi/session.cc.
#include <cstdlib>
#include <string>

#include "base/parse_number.h"
#include "collectives/transport/mpi/session.h"

namespace ronde::collectives {

namespace {

constexpr const char* kNoMpi =
    "this build of Ronde has no MPI, so it cannot join the other ranks of this job; configure with "
    "-DRONDE_WITH_MPI=ON, or start the program without mpirun";

}  // namespace

base::Result<bool> MpiSession::wanted() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* size = std::getenv(variable);
    if (size != nullptr && base::parse_number<int>(size).value_or(0) > 1) {
      return base::Status::error(base::Code::kUnsupported, kNoMpi);
    }
  }
  return false;
}

std::string MpiSession::library() { return "no MPI"; }

base::Result<std::unique_ptr<MpiCommunicator>> MpiSession::open(
    const ProgramCommunicator* /*communicator*/, const base::Clock& /*clock*/,
    base::Instant /*deadline*/) {
  return base::Status::error(base::Code::kUnsupported, kNoMpi);
}

}  // namespace ronde::collectives
