// SPDX-License-Identifier: Apache-2.0
// Executing batches: see executor.h.
#include "runtime/executor.h"

#include <new>
#include <numeric>

#include "collectives/barrier.h"
#include "collectives/broadcast.h"
#include "collectives/ring.h"
#include "fusion/fused_view.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// A collective may use this many tags. Batches that follow each other use different ones, since a
// rank may be one batch ahead of another.
constexpr int kTagsPerBatch = 16;
constexpr std::uint64_t kTagBlocks = 1024;

int first_tag(std::uint64_t sequence) {
  return base::narrow<int>(sequence % kTagBlocks) * kTagsPerBatch;
}

std::vector<base::TensorView> views(const ExecutableBatch& batch) {
  std::vector<base::TensorView> result;
  result.reserve(batch.tensors.size());
  for (const LocalTensorPtr& tensor : batch.tensors) result.push_back(tensor->view);
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
    work.output.resize(payload_of(batch.agreed).size());
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
    if (std::cmp_equal(r, rank)) block.input = tensor.view.input;
    next += block.bytes().value();
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace

Executor::Executor(collectives::Transport& transport, collectives::Workspace& workspace,
                   base::Bytes segment)
    : transport_(transport), workspace_(workspace), segment_(segment) {}

Result<std::unique_ptr<collectives::Collective>> Executor::make(ExecutableBatch& batch) {
  const Signature& is = batch.agreed.signature;
  const int tag = first_tag(batch.sequence);
  switch (is.operation) {
    case Operation::kAllreduce:
      return collectives::ring_allreduce(
          transport_, workspace_, fusion::FusedView(views(batch), transport_.size()),
          {is.dtype, is.op, is.prescale, is.postscale}, segment_, tag);
    case Operation::kBroadcast:
      return collectives::broadcast(transport_, workspace_, fusion::FusedView(views(batch), 1),
                                    is.root, segment_, tag);
    case Operation::kAllgather: {
      auto blocks = gathered_blocks(batch, transport_.rank());
      RONDE_RETURN_IF_ERROR(blocks.status());
      return collectives::ring_allgather(
          transport_, workspace_, fusion::FusedView::of_chunks(is.dtype, *blocks), segment_, tag);
    }
    case Operation::kBarrier:
      return collectives::barrier(transport_, tag);
  }
  return Status::error(Code::kInternal, "a batch with an unknown operation");
}

Result<bool> Executor::step(std::vector<ExecutableBatch>& finished) {
  if (waiting_.empty()) return false;
  if (current_ == nullptr) {
    auto made = make(waiting_.front());
    RONDE_RETURN_IF_ERROR(made.status());
    current_ = std::move(*made);
  }
  const auto result = current_->step();
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
