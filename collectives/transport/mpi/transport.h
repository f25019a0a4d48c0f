// SPDX-License-Identifier: Apache-2.0
// The transport over MPI point-to-point messages. Only transport/mpi/ uses this header; other code
// gets a Transport from MpiCommunicator::transport().
//
// test() reports a message that is longer than its receive, but too late: Open MPI 4.1 writes a
// large one beyond the buffer. So ranks must agree on lengths before, as all collectives do.
#pragma once

#include <memory>

#include "collectives/transport/transport.h"

namespace ronde::collectives {

struct MpiHandle;  // transport/mpi/handle.h

// The transport shares the ownership of the handle, and makes its MPI calls under mpi_lock().
// Thread safety: that of Transport.
std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiHandle> handle);

}  // namespace ronde::collectives
