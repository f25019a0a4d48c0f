// SPDX-License-Identifier: Apache-2.0
// Finalising MPI when the process exits, once no engine uses it any more.
#include "collectives/transport/mpi/session_state.h"

#include <mpi.h>
#include <unistd.h>

namespace ronde::collectives {

Session& session() {
  static auto* const kSession = new Session;
  return *kSession;
}

void finalize_if_last() {
  Session& state = session();
  if (!state.exiting.load() || state.open.load() != 0 || state.failed.load()) return;
  if (state.finalized.exchange(true)) return;
  int finished = 0;
  MPI_Finalized(&finished);
  // It waits for all ranks, for as long as they take: one of them may have much to write down.
  if (finished == 0) MPI_Finalize();
}

// Engines that are open now may be closed later: by destructors of the program's static objects, or
// by libronde.so after those.
void finalize_at_exit() {
  Session& state = session();
  if (!state.started.load() || state.owner.load() != ::getpid()) return;
  state.exiting.store(true);
  finalize_if_last();
}

}  // namespace ronde::collectives
