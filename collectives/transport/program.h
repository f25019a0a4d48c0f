// SPDX-License-Identifier: Apache-2.0
// A program's communicator, free of MPI types: it passes through the C ABI to the MPI plug-in.
#pragma once

#include <cstdint>

namespace ronde::collectives {

// The MPI that a program, or a plug-in, was compiled with. The values are part of the C ABI.
enum class MpiFamily : std::int32_t { kOpenMpi = 1, kMpich = 2 };

// The bits of an MPI_Comm, which mean something to MPIs of that family alone. Thread safety: a
// value.
struct ProgramCommunicator {
  MpiFamily family;
  std::uint64_t handle;
};

}  // namespace ronde::collectives
