// SPDX-License-Identifier: Apache-2.0
// Which algorithm moves the bytes of an operation: one object for each kind of job, with a function
// for each operation. The executor knows tensors, and the collectives know memory; this is between.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/tensor.h"
#include "collectives/board/board.h"
#include "collectives/kernels/reduce.h"
#include "collectives/messages/all_to_all.h"
#include "collectives/messages/choose.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "collectives/two_level/job_shape.h"

namespace ronde::collectives {

// Thread safety: belongs to the agent.
class DataPlane {
 public:
  using CollectivePtr = std::unique_ptr<Collective>;
  using Views = std::vector<base::TensorView>;

  virtual ~DataPlane() = default;

  // `sequence` numbers the batches of the job: what runs at the same time is told apart by it.
  // `on_board`: on every rank all of the tensors lie in its arena, and their inputs are their
  // outputs.
  virtual CollectivePtr allreduce(const Views& tensors, const Reduction& reduction, bool on_board,
                                  std::uint64_t sequence) = 0;
  virtual CollectivePtr broadcast(const Views& tensors, std::int32_t root,
                                  std::uint64_t sequence) = 0;
  // Blocks by rank: each has an output, this rank's has the input.
  virtual CollectivePtr allgather(base::DType dtype, const Views& blocks,
                                  std::uint64_t sequence) = 0;
  // Blocks by rank: each has an input, this rank's has the output.
  virtual CollectivePtr reduce_scatter(const Views& blocks, const Reduction& reduction,
                                       std::uint64_t sequence) = 0;
  virtual CollectivePtr all_to_all(RowsToSend send, AllocateRows allocate,
                                   std::uint64_t sequence) = 0;
  virtual CollectivePtr barrier(std::uint64_t sequence) = 0;

  // Once, before the first operation, on every rank: finds out what this machine likes. `idle` is
  // called while others are waited for; its error ends it.
  virtual base::Status tune(const base::Config& config,
                            const std::function<base::Status()>& idle) = 0;

  // Before this rank sleeps: whoever moves a collective of it along must ring its doorbell.
  virtual void want_rings(bool wanted) = 0;

  // What was chosen and why, in one line.
  [[nodiscard]] virtual std::string description() const = 0;
};

// Over the slots of the board: all ranks share this host. `probe`: tune() measures, where the
// configuration leaves the choice open.
std::unique_ptr<DataPlane> make_in_host_plane(const Board& board, bool probe);

// Messages over the transport alone: every rank counts as a host. The algorithm is that of
// allreduces, and gives the bits of the ring whichever it is. The workspace must outlive the
// transport, and both the plane.
std::unique_ptr<DataPlane> make_message_plane(Transport& transport, Workspace& workspace,
                                              base::Bytes segment,
                                              Algorithm algorithm = Algorithm::kRing);

// A job of several hosts: the board is that of this one, and the transport that of all ranks. The
// workspace must outlive the transport, and both the plane.
std::unique_ptr<DataPlane> make_two_level_plane(const Board& board, bool probe,
                                                const JobShape& shape, Transport& transport,
                                                Workspace& workspace, const base::Config& config);

}  // namespace ronde::collectives
