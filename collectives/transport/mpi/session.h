// SPDX-License-Identifier: Apache-2.0
// The process's MPI: one process-wide, reference-counted session behind a lock (MPI itself is
// process-wide, so this is the only state outside engines), and per engine a duplicate of the
// program's communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/mpi/handle.h"
#include "collectives/transport/mpi/roll_call.h"
#include "collectives/transport/program.h"
#include "collectives/transport/roll.h"

namespace ronde::collectives {

// The ranks of a job, and the owner of the duplicate of their communicator.
//
// Thread safety: used by one thread at a time (the engine's start and stop, then the holder of the
// agent's role); every MPI call inside is made under the session's lock. open() may be called from
// any thread.
class MpiCommunicator {
 public:
  // Duplicates a communicator; all of its ranks must take part before the deadline. `communicator`
  // stays the program's; nullptr means MPI_COMM_WORLD. MPI_COMM_NULL and an inter-communicator are
  // refused.
  // If the program has not started MPI, this thread does, and MPI is finalised at exit. If MPI does
  // not start before the deadline, the process ends, since MPI cannot be interrupted.
  static base::Result<std::unique_ptr<MpiCommunicator>> open(
      const ProgramCommunicator* communicator, const base::Clock& clock, base::Instant deadline);
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  // The destructor makes no MPI call. Call close() or abandon() before: a process that exits with
  // an open communicator does not finalise MPI, because its peers still wait for it (mpirun then
  // ends them).
  ~MpiCommunicator() = default;

  // For an end between all ranks of the job, which may outlive this object.
  [[nodiscard]] const std::shared_ptr<MpiHandle>& handle() const { return handle_; }
  // The ranks that share this host's memory, this one included, ascending.
  [[nodiscard]] const std::vector<int>& ranks_on_this_host() const { return ranks_on_host_; }

  // Returns every rank's bytes, by rank; lengths may differ. It is for the start, and blocks until
  // the deadline. If a rank does not take part, it fails with an error that names the rank, and
  // abandons this object. `activity` is what the ranks do here, for that error. `trouble` is why
  // this rank cannot start; it reaches the others even if some rank never takes part.
  base::Result<std::vector<std::vector<std::byte>>> allgather_bytes(std::span<const std::byte> mine,
                                                                    const std::string& activity,
                                                                    const StartTrouble& trouble,
                                                                    const base::Clock& clock,
                                                                    base::Instant deadline);

  // Tells whether any thread may use ends and close(), one at a time. Otherwise only the thread
  // that opened this object may: the program has started MPI below MPI_THREAD_SERIALIZED.
  [[nodiscard]] bool any_thread() const { return handle_->thread_level >= MPI_THREAD_SERIALIZED; }
  // The level that MPI was started with: "MPI_THREAD_FUNNELED".
  [[nodiscard]] std::string thread_level() const;

  // Gives up after a failure: peers may be dead, so neither this object nor its ends call MPI
  // again, and MPI is not finalised at exit.
  void abandon();

  // Whether Ronde started MPI, in this process, so that this object must be closed before the
  // process has ended: MPI is finalised then.
  [[nodiscard]] bool ends_with_process() const;

  // Frees the duplicate; nothing may be outstanding. All ranks close (the engines agree on it
  // first): the MPI standard calls this collective, and expects it not to wait. The last to close
  // while the process exits finalises MPI, if Ronde started it.
  base::Status close();

 private:
  // The purpose and the deadline of a collective of the start.
  struct Occasion {
    const std::string& activity;
    const StartTrouble& trouble;
    const base::Clock& clock;
    base::Instant deadline;
  };

  MpiCommunicator(std::shared_ptr<MpiHandle> handle, MpiRollCall roll_call);
  // The first exchange on the new communicator: every rank sends the identity of its host.
  base::Status find_hosts(const base::Clock& clock, base::Instant deadline);
  // Gathers counts[r] bytes from each rank r and appends them to parts[r].
  base::Status gather_round(std::span<const std::byte> mine, std::vector<int> counts,
                            std::vector<std::vector<std::byte>>& parts, const Occasion& occasion);
  base::Result<std::vector<std::int64_t>> gather_lengths(std::int64_t mine,
                                                         const Occasion& occasion);

  std::shared_ptr<MpiHandle> handle_;
  MpiRollCall roll_call_;
  std::vector<int> ranks_on_host_;
};

}  // namespace ronde::collectives
