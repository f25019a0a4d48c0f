// SPDX-License-Identifier: Apache-2.0
// MPI's own collectives as contenders. This header has no types of MPI: builds without MPI use it
// too (no_mpi_peers.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "examples/perf/contenders/contender.h"

namespace ronde::perf {

// MPI in this program, if it is needed at all: a job without these contenders starts MPI only
// through Ronde.
//
// Thread safety: belongs to one thread.
class MpiPeers {
 public:
  MpiPeers() = default;
  MpiPeers(const MpiPeers&) = delete;
  MpiPeers& operator=(const MpiPeers&) = delete;
  // This does not end MPI: after a failure that would wait for ranks that are dead.
  virtual ~MpiPeers() = default;

  // Makes the contender "mpi" or "mpi-best".
  [[nodiscard]] virtual std::unique_ptr<Contender> make(const std::string& name) = 0;
  [[nodiscard]] virtual std::string version() const = 0;
  // The algorithm that mpi-best runs, as MPI reports it; empty without mpi-best.
  [[nodiscard]] virtual std::string best() const = 0;
  // Ends MPI in order, after the engine has closed. Collective.
  virtual void close() = 0;
};

// Starts MPI; call it before the engine opens. Throws UsageError where a contender is not
// available.
[[nodiscard]] std::unique_ptr<MpiPeers> start_mpi_peers(const std::vector<std::string>& names);

}  // namespace ronde::perf
