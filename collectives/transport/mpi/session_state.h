// SPDX-License-Identifier: Apache-2.0
// The state of the process's MPI, which is process-wide itself, and its end when the process exits.
#pragma once

#include <sys/types.h>

#include <atomic>

#include "base/mutex.h"

namespace ronde::collectives {

// Thread safety: as its members say.
struct Session {
  base::Mutex lock;
  // The process that opened the first communicator; a forked child of it is not part of the job.
  std::atomic<pid_t> owner{0};
  // Whether Ronde started MPI, and so has to finalise it.
  std::atomic<bool> started{false};
  // Communicators that are neither closed nor abandoned.
  std::atomic<int> open{0};
  // A failure was reported: peers may be dead, and MPI_Finalize would wait for them.
  std::atomic<bool> failed{false};
  // The program has left main(): whoever closes the last communicator finalises MPI, once.
  std::atomic<bool> exiting{false};
  std::atomic<bool> finalized{false};
};

// Never destroyed: it is used after everything else has been.
Session& session();

// To be registered with atexit() where Ronde starts MPI.
void finalize_at_exit();

// Finalises MPI if the process exits, no communicator is open and nothing has failed. An exit
// without MPI_Finalize makes mpirun end the other ranks, which is right after a failure, or when
// the program leaves in mid-job.
void finalize_if_last();

}  // namespace ronde::collectives
