// SPDX-License-Identifier: Apache-2.0
// The checks before MPI calls, and MPI's errors as texts.
#include "collectives/transport/mpi/handle.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/numbers.h"

namespace ronde::collectives {

using base::Code;
using base::Result;
using base::Status;

namespace {

using HandleBits = std::array<std::byte, sizeof(MPI_Comm)>;
static_assert(sizeof(MPI_Comm) <= sizeof(ProgramCommunicator::handle));

}  // namespace

Result<MPI_Comm> handle_of(const ProgramCommunicator* program) {
  if (program == nullptr) return MPI_Comm{MPI_COMM_WORLD};
  HandleBits bits;
  std::memcpy(bits.data(), &program->handle, bits.size());
  const auto communicator = std::bit_cast<MPI_Comm>(bits);
  if (program->handle == 0 || communicator == MPI_COMM_NULL) {
    return Status::error(Code::kInvalidArgument,
                         "the communicator is MPI_COMM_NULL; pass one that has this rank in it");
  }
  int two_groups = 0;
  const int error = MPI_Comm_test_inter(communicator, &two_groups);
  if (error != MPI_SUCCESS) return mpi_error(error, "asking MPI about the communicator");
  if (two_groups == 0) return communicator;
  return Status::error(
      Code::kInvalidArgument,
      "the communicator is an inter-communicator: its ranks are two groups; pass an "
      "intra-communicator, such as MPI_Intercomm_merge makes");
}

Result<bool> mpi_running() {
  int started = 0;
  int finished = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finished);
  if (finished != 0) {
    return Status::error(Code::kInvalidArgument,
                         "MPI has been finalised already; create engines between MPI_Init_thread "
                         "and MPI_Finalize, or let Ronde start MPI");
  }
  return started != 0;
}

Status finalized_too_early() {
  return Status::error(Code::kInvalidArgument,
                       "MPI was finalised while the engine was open; close every engine before "
                       "MPI_Finalize");
}

Status forked_child() {
  return Status::error(Code::kUnsupported,
                       "a forked process has no part in the job of its parent; create the engine "
                       "after the fork, in a process that mpirun started");
}

Status MpiHandle::usable() const {
  if (abandoned.load(std::memory_order_acquire)) {
    return Status::error(Code::kTransport, "MPI is not used any more after a failure or close");
  }
  if (!owner.is_mine()) return forked_child();
  return mpi_running().ok() ? Status() : finalized_too_early();
}

Status mpi_error(int code, const std::string& activity, std::source_location where) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  const std::string words = length > 0 ? std::string(text.data(), base::narrow<std::size_t>(length))
                                       : "error " + std::to_string(code);
  return Status::error(Code::kTransport, activity + ": MPI reports " + words, where);
}

}  // namespace ronde::collectives
