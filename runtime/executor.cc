// SPDX-License-Identifier: Apache-2.0
// Executing batches: see executor.h.
#include "runtime/executor.h"

#include <new>
#include <numeric>

#include "runtime/idle.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

std::vector<base::TensorView> views(const ExecutableBatch& batch) {
  std::vector<base::TensorView> result;
  result.reserve(batch.tensors.size());
  for (const LocalTensorPtr& tensor : batch.tensors) {
    result.insert(result.end(), tensor->views.begin(), tensor->views.end());
  }
  return result;
}

// The result of an allgather, as blocks by rank; this rank's has the input.
Result<std::vector<base::TensorView>> gathered_blocks(const ExecutableBatch& batch, int rank) {
  const LocalTensor& tensor = *batch.tensors.front();
  Work& work = *tensor.work;
  const auto& rows = batch.agreed.first_dimensions;
  base::Shape row_shape = batch.agreed.signature.shape;
  row_shape[0] = 1;
  const std::int64_t row_elements = base::elements_of(row_shape).value().value();
  try {
    work.output.allocate(payload_of(batch.agreed).size());
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory,
                         "'" + tensor.name + "': no memory for the gathered " +
                             std::to_string(payload_of(batch.agreed).value()) +
                             " bytes, and the others are waiting: check the first dimensions");
  }
  work.output_dtype = batch.agreed.signature.dtype;
  work.output_shape = batch.agreed.signature.shape;
  work.output_shape[0] = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  std::vector<base::TensorView> blocks;
  std::byte* next = work.output.data();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    base::TensorView block;
    block.elements = base::Elements(rows[r] * row_elements);
    block.dtype = batch.agreed.signature.dtype;
    block.output = next;
    if (std::cmp_equal(r, rank)) block.input = tensor.views.front().input;
    next += block.bytes().value();
    blocks.push_back(block);
  }
  return blocks;
}

// The memory for the rows that an all-to-all brings.
Result<std::span<std::byte>> received_rows(const LocalTensor& tensor,
                                           std::span<const std::int64_t> received,
                                           std::int64_t row_bytes) {
  Work& work = *tensor.work;
  std::int64_t rows = 0;
  for (const std::int64_t of_rank : received) {
    // Of rows without bytes there may be any number.
    if (of_rank < 0 || __builtin_add_overflow(rows, of_rank, &rows)) {
      return Status::error(Code::kInvalidArgument, "'" + tensor.name +
                                                       "': the other ranks send more than 2^63 - "
                                                       "1 rows; check their splits");
    }
  }
  const base::Bytes bytes(rows * row_bytes);
  try {
    work.output.allocate(bytes.size());
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory,
                         "'" + tensor.name + "': no memory for the " +
                             std::to_string(bytes.value()) +
                             " bytes that the other ranks send, and they are waiting: send less");
  }
  work.output_dtype = tensor.signature.dtype;
  work.output_shape = tensor.signature.shape;
  work.output_shape[0] = rows;
  work.received_splits.assign(received.begin(), received.end());
  return std::span<std::byte>(work.output.data(), work.output.size());
}

collectives::Reduction reduction_of(const Signature& is) {
  return {is.dtype, is.op, is.prescale, is.postscale, is.compression};
}

}  // namespace

Executor::Executor(std::unique_ptr<DataPlane> plane, std::int32_t rank, std::int32_t size,
                   int watch)
    : plane_(std::move(plane)), rank_(rank), size_(size), watch_(watch) {}

Result<DataPlane::CollectivePtr> Executor::make(const ExecutableBatch& batch) {
  const Signature& is = batch.agreed.signature;
  switch (is.operation) {
    case Operation::kAllreduce:
      return plane_->allreduce(views(batch), reduction_of(is), is.on_board, batch.sequence);
    case Operation::kBroadcast:
      return plane_->broadcast(views(batch), is.root, batch.sequence);
    case Operation::kAllgather: {
      const auto blocks = gathered_blocks(batch, rank_);
      RONDE_RETURN_IF_ERROR(blocks.status());
      return plane_->allgather(is.dtype, *blocks, batch.sequence);
    }
    case Operation::kBarrier:
      return plane_->barrier(batch.sequence);
    case Operation::kReduceScatter:
      return make_reduce_scatter(batch);
    case Operation::kAllToAll:
      return make_all_to_all(batch);
  }
  return Status::error(Code::kInternal, "a batch with an unknown operation");
}

DataPlane::CollectivePtr Executor::make_reduce_scatter(const ExecutableBatch& batch) {
  const Signature& is = batch.agreed.signature;
  const base::TensorView& whole = batch.tensors.front()->views.front();
  const std::int64_t row = row_elements(is.shape).value();
  std::vector<base::TensorView> blocks;
  const std::byte* next = whole.input;
  for (std::int32_t rank = 0; rank < size_; ++rank) {
    base::TensorView block;
    block.elements = base::Elements(rows_of_rank(is, rank, size_) * row);
    block.dtype = is.dtype;
    block.input = next;
    if (rank == rank_) block.output = whole.output;
    next += block.bytes().value();
    blocks.push_back(block);
  }
  return plane_->reduce_scatter(blocks, reduction_of(is), batch.sequence);
}

DataPlane::CollectivePtr Executor::make_all_to_all(const ExecutableBatch& batch) {
  const LocalTensorPtr& tensor = batch.tensors.front();
  const Signature& is = tensor->signature;
  const std::int64_t row_bytes = row_elements(is.shape).value() * base::size_of(is.dtype);
  return plane_->all_to_all(
      {tensor->views.front().input, tensor->splits, base::Bytes(row_bytes)},
      [tensor, row_bytes](std::span<const std::int64_t> received) {
        return received_rows(*tensor, received, row_bytes);
      },
      batch.sequence);
}

Result<bool> Executor::step(std::vector<ExecutableBatch>& finished) {
  if (waiting_.empty()) return false;
  if (current_ == nullptr) {
    auto made = make(waiting_.front());
    RONDE_RETURN_IF_ERROR(made.status());
    current_ = std::move(*made);
  }
  auto result = current_->step();
  // Where the others are about to post, a look here is much cheaper than one at everything.
  for (int i = 0; i < watch_ && result.ok() && *result == collectives::StepResult::kIdle; ++i) {
    cpu_relax();
    result = current_->step();
  }
  RONDE_RETURN_IF_ERROR(result.status());
  if (*result != collectives::StepResult::kDone) {
    return *result == collectives::StepResult::kProgress;
  }
  current_.reset();
  finished.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return true;
}

void Executor::abandon() {
  current_.reset();
  waiting_.clear();
}

}  // namespace ronde::runtime
