// SPDX-License-Identifier: Apache-2.0
// A batch, as the executor gets it: an exchange, and what only tensors of a device have.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collectives/device/device.h"
#include "collectives/plane/exchange.h"

namespace ronde::runtime {

// The memory belongs to the callers of the tensors and to their works, and must stay until the
// batch is finished or abandoned. Thread safety: a value.
struct Batch {
  collectives::Exchange exchange;
  bool of_device = false;
  // What each tensor of a device waits for; a barrier of devices has a tensor without elements.
  std::vector<collectives::ReadyMarkPtr> ready;
};

// An error fails the tensors of the batch, but not the job.
struct FinishedBatch {
  std::uint64_t sequence = 0;
  base::Status status{};
};

}  // namespace ronde::runtime
