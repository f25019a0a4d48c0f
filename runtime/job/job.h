// SPDX-License-Identifier: Apache-2.0
// The job an engine belongs to: who the ranks are, the board they share, and the transport between
// them. Two kinds: processes started by mpirun (process_job.cc) and engines in one process
// (local_job.h), which run the very same protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/board/file_descriptor.h"
#include "collectives/transport/mpi/program.h"
#include "collectives/transport/transport.h"
#include "collectives/two_level/job_shape.h"
#include "runtime/links/tcp_links.h"

namespace ronde::runtime {

// Another rank of this host, to be watched: the descriptor becomes readable when its process ends.
struct PeerWatch {
  std::int32_t rank = 0;
  collectives::FileDescriptor pidfd;
};

// Thread safety: belongs to the engine; used by one thread at a time.
class Job {
 public:
  virtual ~Job() = default;

  [[nodiscard]] virtual std::int32_t rank() const = 0;
  [[nodiscard]] virtual const collectives::JobShape& shape() const = 0;
  [[nodiscard]] std::int32_t size() const { return shape().ranks(); }
  [[nodiscard]] std::int32_t host() const { return shape().host_of(rank()); }
  // This rank's position on its host, and how many ranks the host has.
  [[nodiscard]] std::int32_t local_rank() const { return shape().position_of(rank()); }
  [[nodiscard]] std::int32_t local_size() const;
  [[nodiscard]] std::int32_t rank_at(std::int32_t position) const;

  // Which rank is where, in some lines for people.
  [[nodiscard]] virtual std::string table() const { return "job of " + shape().text(); }

  // The cores that the ranks of this host may use together.
  [[nodiscard]] virtual std::int64_t cores() const = 0;
  [[nodiscard]] bool oversubscribed() const { return local_size() > cores(); }

  // Of this host.
  [[nodiscard]] virtual collectives::Board& board() = 0;
  // On the leader of a job of several hosts: the links to its neighbours; to be taken once.
  // Elsewhere nullptr.
  virtual std::unique_ptr<TcpLinks> take_links() = 0;
  [[nodiscard]] virtual std::unique_ptr<collectives::Transport> make_transport() = 0;
  // Empty if any thread may use the transport, one at a time. Otherwise only the thread that opened
  // the job may, and this says why: "the program started MPI with MPI_THREAD_FUNNELED".
  [[nodiscard]] virtual std::string transport_bound_to_thread() const { return ""; }

  // Whether the time of a probe at the start is well spent: not for engines in one process.
  [[nodiscard]] virtual bool probes() const = 0;

  // Descriptors of the other processes, once all ranks have entered the board. Empty when the ranks
  // share this process.
  virtual base::Result<std::vector<PeerWatch>> watch_peers() = 0;

  // Every rank's bytes, by rank; lengths may differ. `doing`: what a rank that does not take part
  // is said to keep the others from. For the start alone: by the thread that opens the engine, on
  // all ranks, before the transport moves anything.
  virtual base::Result<std::vector<std::vector<std::byte>>> allgather(
      std::span<const std::byte> mine, const std::string& doing, const base::Clock& clock,
      base::Instant deadline) = 0;

  // After a failure: the transport is not used again.
  virtual void abandon() = 0;
  // The orderly end; the transport has been destroyed.
  virtual base::Status close() = 0;
};

// Refuses ranks that were started with settings that must be the same everywhere; texts[r] is rank
// r's Config::shared_text(). The error names the setting and groups the ranks by value.
base::Status check_shared_settings(const std::vector<std::string>& texts);

// Joins the MPI job of this process, or makes a job of one where there is none.
// communicator: one of the program's; nullptr is MPI_COMM_WORLD.
base::Result<std::unique_ptr<Job>> open_process_job(
    const collectives::ProgramCommunicator* communicator, const base::Config& config,
    const base::Clock& clock);

// The geometry of every board: streams are sized so that the requests of a large model fit.
[[nodiscard]] collectives::BoardGeometry board_geometry(std::int32_t ranks,
                                                        const base::Config& config);

}  // namespace ronde::runtime
