// SPDX-License-Identifier: Apache-2.0
// What the executor gets of the tensors of a batch.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/device/device.h"
#include "runtime/execute/batch.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// Makes the exchange of tensors that were claimed, in a job of `size` ranks. Their results go into
// their works, in memory of `device` where they are of one. over_all: averages divide by the number
// of all ranks, those that are absent too.
//
// Thread safety: only the agent calls it.
[[nodiscard]] Batch batch_of(std::uint64_t sequence, const TensorTable::Claimed& claimed,
                             std::int32_t size, const std::shared_ptr<collectives::Device>& device,
                             bool over_all = false);

}  // namespace ronde::runtime
