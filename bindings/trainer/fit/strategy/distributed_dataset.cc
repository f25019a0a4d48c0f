// SPDX-License-Identifier: Apache-2.0
// Steps of an epoch.
#include "bindings/trainer/fit/strategy/distributed_dataset.h"

#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

std::size_t InputContext::get_per_replica_batch_size(std::size_t global_batch) const {
  if (global_batch != 0 && global_batch % num_replicas_in_sync == 0) {
    return global_batch / num_replicas_in_sync;
  }
  throw TrainerError("a global batch of " + std::to_string(global_batch) +
                         " is not the same number of samples on each of " +
                         std::to_string(num_replicas_in_sync) +
                         " replicas: use a multiple of the replicas",
                     kExitConfiguration);
}

bool DistributedEpoch::next() {
  std::vector<std::reference_wrapper<const StepBatch>> parts;
  const bool more = reader_->next(parts);
  if (more) batch_ = DistributedBatch(std::move(parts));
  return more;
}

}  // namespace ronde::trainer
