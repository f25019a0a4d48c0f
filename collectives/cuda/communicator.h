// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL that never blocks: each call may go on behind its back, so after each it
// is asked, with a deadline, whether it has got through. Only then is the work in the stream, and
// only then may it be asked for more.
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

// How long something may be waited for: until the time is over, or somebody gives up.
struct Patience {
  base::Instant deadline = base::kNever;
  const std::atomic<bool>* given_up = nullptr;
};

// Thread safety: one thread at a time.
class Communicator {
 public:
  // With all ranks of the group. kDeadline: not all have come in time.
  static base::Result<std::unique_ptr<Communicator>> open(const NcclApi& nccl,
                                                          const ncclUniqueId& id,
                                                          const Group& group,
                                                          const Patience& patience);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort(); }

  // Puts the moves into the stream, as one group.
  base::Status run(std::span<const Move> moves, Stream stream, const Patience& patience);
  // What has gone wrong since, on any rank.
  base::Status check();
  // Ends its kernels, whoever they wait for.
  void abort();
  // There is nobody left to call.
  void abandon() { handle_ = nullptr; }
  // When nothing is under way. After the deadline: abort().
  void close(const Patience& patience);

 private:
  Communicator(const NcclApi& nccl, ncclComm_t handle) : nccl_(nccl), handle_(handle) {}

  base::Status ready(const char* doing, const Patience& patience);
  base::Status issue(const Move& move, ncclRedOp_t op, Stream stream);
  base::Status failed(const char* doing, ncclResult_t result);
  base::Status issue_group(std::span<const Move> moves, std::span<const ncclRedOp_t> ops,
                           Stream stream);

  const NcclApi nccl_;
  ncclComm_t handle_;
};

}  // namespace ronde::collectives::cuda
