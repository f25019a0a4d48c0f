// SPDX-License-Identifier: Apache-2.0
// The data plane, which chooses the algorithm that moves the bytes of an exchange: one class for
// each kind of job. It is between the executor, which knows what moves, and the collectives, which
// know how.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/job_shape.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "collectives/messages/choose.h"
#include "collectives/plane/exchange.h"
#include "collectives/transport/batch_times.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"

namespace ronde::collectives {

// The collectives that it makes are the caller's; the plane and the memory of their views must
// outlive them. Thread safety: used by the agent alone.
class DataPlane {
 public:
  using CollectivePtr = std::unique_ptr<Collective>;

  virtual ~DataPlane() = default;

  // An error where there is no memory for the result.
  virtual base::Result<CollectivePtr> make(const Exchange& exchange) = 0;

  // Measures, once and on every rank before the first operation, which tuning is the fastest on
  // this machine. While it waits for other ranks it calls idle(), whose error ends it.
  virtual base::Status tune(const base::Config& config,
                            const std::function<base::Status()>& idle) = 0;

  // Call this with true before this rank sleeps: then a rank that makes one of its collectives able
  // to go on rings its doorbell.
  virtual void want_rings(bool wanted) = 0;

  // How long the phases of a batch take, where this plane measures them; else nullptr.
  [[nodiscard]] virtual BatchTimes* times() { return nullptr; }

  // The choice of algorithms and the reason, in one line for the user.
  [[nodiscard]] virtual std::string description() const = 0;
};

// Makes the plane of a job on one host, over the slots of its board. With `probe`, tune() measures
// where the configuration leaves the choice open.
std::unique_ptr<DataPlane> make_in_host_plane(const Board& board, bool probe);

// Makes a plane of messages over the transport alone: every rank counts as a host. The algorithm is
// that of allreduces, and every choice gives the bits of the ring. The workspace must outlive the
// transport, and both the plane.
std::unique_ptr<DataPlane> make_message_plane(Transport& transport, Workspace& workspace,
                                              base::Bytes segment, const Algorithm& algorithm);

// Makes the plane of a job of several hosts: the board is that of this host, and the transport that
// of all ranks. The workspace must outlive the transport, and both the plane. block: the most bytes
// of a slice of a vector that are in flight; without it as many as keep the links busy.
std::unique_ptr<DataPlane> make_two_level_plane(const Board& board, bool probe,
                                                const base::JobShape& shape, Transport& transport,
                                                Workspace& workspace, const base::Config& config,
                                                base::Bytes block = {});

}  // namespace ronde::collectives
