// SPDX-License-Identifier: Apache-2.0
// The MPI that a process has loaded already, since its program is linked with one: found without
// loading any, so that a process that needs none gets none.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "collectives/transport/program.h"
#include "collectives/transport/transport_library.h"

namespace ronde::collectives {

// Thread safety: a value.
struct ProcessMpi {
  std::string library;   // in its own words: "Open MPI v4.1.4"
  bool started = false;  // it may have been finalised since
};

// Looks for MPI's functions among the symbols of the program, and then in libraries named as MPIs
// are, which the program may have loaded for itself alone (as Python does). Thread safety: any
// thread.
std::optional<ProcessMpi> process_mpi();

// Refuses a plug-in whose MPI is another one than that of the program's communicator (nullptr: it
// gives none), or than the one that the process has loaded, whose functions the plug-in would call.
base::Status check_mpi(const TransportLibrary& plugin, const ProgramCommunicator* communicator,
                       const std::optional<ProcessMpi>& loaded);

}  // namespace ronde::collectives
