// SPDX-License-Identifier: Apache-2.0
// How the ranks of a job find each other: over MPI (that is a plug-in's meeting, plugin.h), a TCP
// address, or a store that the program brings. Whatever it is, it gives rank, size and an exchange
// of bytes, with which the rest of the start is done.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/roll.h"

namespace ronde::collectives {

// Those who come to a job that has started: `fd` becomes readable when somebody has, and `answer`,
// which any thread may call, sees to them. It is false once nobody can come any more.
struct Visitors {
  int fd = -1;  // none can come
  std::function<bool()> answer;
};

// A rank's part in the meeting of its job. The process job owns it from the start to the end of the
// engine.
//
// Thread safety: one thread at a time (the engine's start and stop, then the holder of the agent's
// role); abandon() by any.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  // The destructor waits for nobody. Call close() or abandon() before.
  virtual ~Meeting() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // The ranks that share this host's memory, this one included, ascending.
  [[nodiscard]] virtual std::vector<int> ranks_on_this_host() const = 0;

  // For people, in the table of the job: "MPI (Open MPI 4.1.4)", "10.0.0.1:29500 (torchrun)".
  [[nodiscard]] virtual std::string text() const = 0;

  // Returns every rank's bytes, by rank; lengths may differ. It is for the start, and blocks until
  // the deadline. If a rank does not take part, it fails with an error that names the rank
  // (kDeadline), and abandons this object. `activity` is what the ranks do here, for that error:
  // "exchanging addresses". `trouble` is why this rank cannot start; it reaches the others even if
  // some rank never takes part, and is then the error of all (root_cause() of roll.h).
  virtual base::Result<std::vector<std::vector<std::byte>>> allgather(
      std::span<const std::byte> mine, const std::string& activity, const StartTrouble& trouble,
      const base::Clock& clock, base::Instant deadline) = 0;

  // Empty if any thread may use this object and the transports that it carries, one at a time.
  // Otherwise only the thread that opened it may, and this is the reason.
  [[nodiscard]] virtual std::string bound_to_thread() const { return ""; }

  // The start is over on this rank, and allgather() is not called any more: a meeting that is
  // needed for nothing else keeps nothing open from here on.
  virtual void started() {}
  // They may come as long as this object exists.
  [[nodiscard]] virtual Visitors visitors() { return {}; }

  // Whether an engine that the program leaves open has to be closed when the process exits: because
  // what the meeting stands on must have ended by then (MPI that Ronde started), or because the
  // other ranks would take the end for a death.
  [[nodiscard]] virtual bool ends_with_process() const { return false; }

  // Gives up after a failure: peers may be dead.
  virtual void abandon() = 0;
  // Leaves in order; all ranks do (the engines agree on it first).
  virtual base::Status close() = 0;
};

}  // namespace ronde::collectives
