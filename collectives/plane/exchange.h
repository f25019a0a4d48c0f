// SPDX-License-Identifier: Apache-2.0
// Whatever moves: one value that says what all ranks do together, and with which memory. Data
// planes make collectives of it, staging makes the same exchange on other memory, devices get its
// blocks.
//
// Thread safety: a value; the memory of its tensors is the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/operations.h"
#include "base/status.h"
#include "base/tensor.h"
#include "collectives/kernels/reduce.h"
#include "collectives/messages/all_to_all.h"
#include "fusion/fused_view.h"

namespace ronde::collectives {

// What this rank brings to an average by weights: sum of w * x / sum of w, over all ranks.
struct OwnWeights {
  std::vector<double> of_tensors;  // one for each tensor
  std::int32_t ranks = 0;          // of the job
  // Called, on every rank alike, for a tensor whose weights have no usable sum; its output is
  // unspecified then.
  std::function<void(std::size_t tensor, const base::Status& why)> refuse;
};

struct Exchange {
  base::Operation operation{};
  // Numbers the batches of the job, and tells collectives apart that run at the same time.
  std::uint64_t sequence = 0;
  // What this rank reads and writes, as the row of the operation says: tensors that move as one, or
  // a single one, cut into blocks by `rows`, without an output where `result` gives it. A barrier
  // needs none.
  std::vector<base::TensorView> tensors;
  Reduction how;  // the dtype is that of the tensors for all operations
  std::int32_t root = 0;
  // On every rank all that it gives lies in its arena; of an allreduce, inputs are outputs.
  bool on_board = false;
  // The rows of the block of each rank, and the elements of one row. Where each rank gives a block
  // to each, these are the rows that it gives.
  std::vector<std::int64_t> rows;
  base::Elements row;
  // The memory for an output in blocks; called once, with the rows that come from each rank.
  AllocateRows result;
  // Without tensors: nothing is averaged by weights. See make_collective (weighted.h).
  OwnWeights weights{};

  [[nodiscard]] const base::OperationRow& what() const { return base::row(operation); }
  // The sum over all tensors, as this rank has them.
  [[nodiscard]] base::Bytes bytes() const {
    base::Bytes sum;
    for (const base::TensorView& tensor : tensors) sum += tensor.bytes();
    return sum;
  }
  // What this rank gives to each, where it does.
  [[nodiscard]] RowsToSend rows_to_send() const {
    return {tensors.front().input, rows, base::Bytes(row.value() * base::size_of(how.dtype))};
  }
};

// Cuts memory into blocks of so many rows, one after another; both pointers may be null, and are
// null in all blocks then.
[[nodiscard]] std::vector<base::TensorView> cut(const Exchange& exchange,
                                                std::span<const std::int64_t> rows,
                                                const std::byte* input, std::byte* output);

// The blocks of all ranks, where one side of the exchange has one block for each rank and the other
// the block of `rank`. Asks for the memory of the result, if there is one.
base::Result<std::vector<base::TensorView>> blocks_of(const Exchange& exchange, int rank);
// The same as one view, a chunk for each block.
base::Result<fusion::FusedView> chunks_of(const Exchange& exchange, int rank);

}  // namespace ronde::collectives
