// SPDX-License-Identifier: Apache-2.0
// The transport over MPI point-to-point messages. Only mpi_*.cc files use this header; everybody
// else gets a Transport from MpiCommunicator::transport().
//
// A message that is longer than its receive expects is reported, but not harmless: Open MPI 4.1
// writes a large one beyond the buffer. So lengths must be agreed on before, as all collectives do.
#pragma once

#include <memory>

#include "collectives/transport/transport.h"

namespace ronde::collectives {

struct MpiHandle;  // transport/mpi/handle.h

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiHandle> handle);

}  // namespace ronde::collectives
