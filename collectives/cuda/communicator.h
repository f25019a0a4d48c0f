// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL that never blocks: each call may go on in the background, so after each we
// ask NCCL, with a deadline, whether it has ended. Only then is the work in the stream, and only
// then may NCCL be called again.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/cuda/batch_plan.h"
#include "collectives/cuda/cuda_api.h"
#include "collectives/cuda/nccl_api.h"

namespace ronde::collectives::cuda {

// How long a wait may last: until the deadline, or until another thread gives up.
struct Patience {
  base::Instant deadline = base::kNever;
  const std::atomic<bool>* given_up = nullptr;
};

// Thread safety: one thread at a time.
class Communicator {
 public:
  // Opens it together with all ranks of the group. kDeadline: not all joined in time.
  static base::Result<std::unique_ptr<Communicator>> open(const NcclApi& nccl,
                                                          const ncclUniqueId& id,
                                                          const Group& group,
                                                          const Patience& patience);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort(); }

  // Puts the moves into the stream, as one group.
  base::Status run(std::span<const Move> moves, Stream stream, const Patience& patience);
  // Returns an error that has happened since, on any rank.
  base::Status check();
  // Ends its kernels, also those that wait for other ranks.
  void abort();
  // Drops it without a call, since the driver is gone.
  void abandon() { handle_ = nullptr; }
  // Closes it when nothing is under way; aborts it after the deadline.
  void close(const Patience& patience);

 private:
  Communicator(const NcclApi& nccl, ncclComm_t handle) : nccl_(nccl), handle_(handle) {}

  base::Status ready(const char* action, const Patience& patience);
  base::Status issue(const Move& move, ncclRedOp_t op, Stream stream);
  base::Status failed(const char* action, ncclResult_t result);
  base::Status issue_group(std::span<const Move> moves, std::span<const ncclRedOp_t> ops,
                           Stream stream);

  const NcclApi nccl_;
  ncclComm_t handle_;
};

}  // namespace ronde::collectives::cuda
