// SPDX-License-Identifier: Apache-2.0
// The end of MPI when the process exits: see session_state.h.
#include "collectives/transport/mpi/session_state.h"

#include <mpi.h>
#include <unistd.h>

#include <map>

namespace ronde::collectives {

using base::MutexLock;

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

namespace {

bool ends_mpi() {
  const Session& state = session();
  return state.started.load() && state.owner.load() == ::getpid();
}

// Closes what the program has never closed. It is made when the library is loaded, before every
// static object of the program, and so is destroyed after them.
class EndOfProcess {
 public:
  constexpr EndOfProcess() = default;
  EndOfProcess(const EndOfProcess&) = delete;
  EndOfProcess& operator=(const EndOfProcess&) = delete;
  ~EndOfProcess() {
    if (!ends_mpi()) return;
    std::map<const MpiCommunicator*, std::function<void()>> left_open;
    {
      const MutexLock lock(session().exit_lock);
      left_open.swap(session().at_exit);
    }
    for (const auto& [communicator, close] : left_open) close();
  }
};
const EndOfProcess kEndOfProcess;

}  // namespace

// Engines that are open now may be closed by destructors of the program's static objects, which
// come later.
void finalize_at_exit() {
  if (!ends_mpi()) return;
  session().exiting.store(true);
  finalize_if_last();
}

}  // namespace ronde::collectives
