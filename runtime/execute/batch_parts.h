// SPDX-License-Identifier: Apache-2.0
// A batch, and the arguments of its collective on the data plane or a device: which memory, in
// which blocks, and where results go whose size only the runtime knows. The memory belongs to the
// caller, or, for results, to the tensor's work.
//
// Thread safety: only the agent calls these functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "collectives/device/device.h"
#include "collectives/kernels/reduce.h"
#include "runtime/tensors/signature.h"
#include "runtime/tensors/tensor_table.h"

namespace ronde::runtime {

// A batch with this rank's memory behind it.
struct ExecutableBatch {
  std::uint64_t sequence = 0;
  AgreedTensor agreed;  // the first tensor's; all of a batch have the same operation, dtype and op
  std::vector<LocalTensorPtr> tensors;
  base::Bytes bytes{0};   // of all tensors, as this rank has them
  base::Status status{};  // of a finished batch: an error fails its tensors, but not the job
};

[[nodiscard]] std::vector<base::TensorView> views_of(const ExecutableBatch& batch);
[[nodiscard]] collectives::Reduction reduction_of(const Signature& signature);

// Allocates the result of an allgather and returns it as blocks by rank; this rank's block has the
// input. The memory is the device's, if one is given.
base::Result<std::vector<base::TensorView>> gathered_blocks(const ExecutableBatch& batch,
                                                            std::int32_t rank,
                                                            collectives::Device* device);
// Returns the input of a reduce-scatter as blocks by rank; this rank's block has the output.
[[nodiscard]] std::vector<base::TensorView> scattered_blocks(const ExecutableBatch& batch,
                                                             std::int32_t rank, std::int32_t size);

// The bytes of one row of an all-to-all.
[[nodiscard]] std::int64_t row_bytes_of(const Signature& signature);
// Stores in the work of an all-to-all how many rows come from each rank, and returns their bytes.
base::Result<base::Bytes> store_received(const LocalTensor& tensor,
                                         std::span<const std::int64_t> received);
// Does the same and allocates memory for these rows, the device's if one is given.
base::Result<std::span<std::byte>> received_rows(const LocalTensor& tensor,
                                                 std::span<const std::int64_t> received,
                                                 collectives::Device* device);

}  // namespace ronde::runtime
