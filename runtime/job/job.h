// SPDX-License-Identifier: Apache-2.0
// The job to which an engine belongs: its ranks, the board that they share, and the transport
// between them. There are two kinds: processes (process_job.h) and engines in one process
// (local_job.h), which run the very same protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/job_shape.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/transport/meeting.h"
#include "collectives/transport/program.h"
#include "collectives/transport/transport.h"
#include "runtime/job/rank_table.h"
#include "runtime/links/set_links.h"
#include "runtime/links/tcp_links.h"
#include "runtime/meet/store.h"

namespace ronde::runtime {

// Another rank of this host, for the runner to watch: the descriptor, a pidfd or a socket, becomes
// readable when its process ends.
struct PeerWatch {
  std::int32_t rank = 0;
  base::FileDescriptor descriptor;
};

// How the slots of a process set grow, once, when a tensor comes that is larger than they are.
struct SlotGrowth {
  base::Bytes most;  // up to this size tensors take the first slots
  // On the leader of a host: makes a board with larger slots, and returns its place.
  std::function<base::Result<std::int64_t>()> make;
  std::function<base::Result<collectives::Board>(std::int64_t place)> board_at;
};

// The engine owns it; links and transports that it returns belong to the agent.
//
// Thread safety: one thread at a time.
class Job {
 public:
  virtual ~Job() = default;

  [[nodiscard]] virtual std::int32_t rank() const = 0;
  [[nodiscard]] virtual const base::JobShape& shape() const = 0;
  [[nodiscard]] std::int32_t size() const { return shape().ranks(); }
  [[nodiscard]] std::int32_t host() const { return shape().host_of(rank()); }
  // This rank's position on its host, and how many ranks the host has.
  [[nodiscard]] std::int32_t local_rank() const { return shape().position_of(rank()); }
  [[nodiscard]] std::int32_t local_size() const;
  [[nodiscard]] std::int32_t rank_at(std::int32_t position) const;

  // Which rank is where, as lines for people.
  [[nodiscard]] virtual std::string table() const { return "job of " + shape().text(); }

  // Where each rank runs, known on every rank since the start; any thread may ask.
  [[nodiscard]] virtual RankTable rank_table() const = 0;

  // The cores that the ranks of this host may use together.
  [[nodiscard]] virtual std::int64_t cores() const = 0;
  [[nodiscard]] bool oversubscribed() const { return local_size() > cores(); }

  // The board of this host.
  [[nodiscard]] virtual collectives::Board& board() = 0;
  // On the leader of a job of several hosts: the links to its neighbours; to be taken once.
  // Elsewhere nullptr.
  virtual std::unique_ptr<TcpLinks> take_links() = 0;
  // The same for a process set, whose links go through the leaders of the job.
  virtual std::unique_ptr<SetLinks> take_set_links() { return nullptr; }
  // To be taken once; nullptr in a job of processes that needs none (needs_transport()).
  [[nodiscard]] virtual std::unique_ptr<collectives::Transport> take_transport() = 0;
  // What a user should know about that transport; empty as a rule.
  [[nodiscard]] virtual std::string transport_note() const { return ""; }
  // Empty if any thread may use the transport, one at a time. Otherwise only the thread that opened
  // the job may, and this is the reason: "the program started MPI with MPI_THREAD_FUNNELED".
  [[nodiscard]] virtual std::string transport_bound_to_thread() const { return ""; }

  // In a process set of several ranks on this host.
  [[nodiscard]] virtual const SlotGrowth* slot_growth() const { return nullptr; }

  // Whether the engine probes at the start how data is moved fastest; engines in one process do
  // not.
  [[nodiscard]] virtual bool probes() const = 0;

  // Descriptors of the other processes, once all ranks have entered the board. Empty when the ranks
  // share this process.
  virtual base::Result<std::vector<PeerWatch>> watch_peers() = 0;
  // After watch_peers(): what a user should know about how ranks are watched; empty as a rule.
  [[nodiscard]] virtual std::string watch_note() const { return ""; }

  // Who may come beside the ranks, for the runner to watch.
  [[nodiscard]] virtual collectives::Visitors visitors() { return {}; }

  // Collective: returns every rank's bytes, by rank; lengths may differ. `activity`: what the ranks
  // do here, for the error that names a rank which does not take part (kDeadline). Only for the
  // start: the thread that opens the engine calls it before the transport moves anything.
  virtual base::Result<std::vector<std::vector<std::byte>>> allgather(
      std::span<const std::byte> mine, const std::string& activity, const base::Clock& clock,
      base::Instant deadline) = 0;

  // The start is over: every rank's engine is open, and allgather() is not called any more.
  virtual void started() {}

  // Has `close` called when the process exits, where what Ronde started must be ended by then.
  virtual void at_exit(const std::function<void()>& /*close*/) {}

  // Called after a failure; the transport is not used again.
  virtual void abandon() = 0;
  // Leaves the job in order, after the transport has been destroyed.
  virtual base::Status close() = 0;
};

// Checks that the settings that must be the same everywhere are; texts[r] is rank r's
// Config::shared_text(). The error names the setting and groups the ranks by value.
base::Status check_shared_settings(const std::vector<std::string>& texts);

// Whether operations need messages between ranks: on a single host only if an algorithm is forced,
// which then takes every rank for a host.
[[nodiscard]] bool needs_transport(const base::Config& config, bool several_hosts);

// Joins the job that this process belongs to (runtime/start/identity.h), or makes a job of one
// where there is none. communicator: one of the program's; nullptr: all ranks that the launcher has
// started. name: of the engine; empty: it has none (opening_engine.h).
base::Result<std::unique_ptr<Job>> open_process_job(
    const collectives::ProgramCommunicator* communicator, const std::string& name,
    const base::Config& config, const base::Clock& clock);

// The job that the program itself has put this process into, whatever started it.
struct OwnJob {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  // Where the ranks meet: over the store, or at "host:port"; where neither is given, at RONDE_MEET.
  std::shared_ptr<Store> store;
  std::string meet;
  std::string name;  // of the engine; empty: it has none
};
base::Result<std::unique_ptr<Job>> open_own_job(const OwnJob& own, const base::Config& config,
                                                const base::Clock& clock);

// The geometry of every board. Streams are large enough for the requests of a large model.
[[nodiscard]] collectives::BoardGeometry board_geometry(std::int32_t ranks,
                                                        const base::Config& config);

}  // namespace ronde::runtime
