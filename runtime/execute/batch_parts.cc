// SPDX-License-Identifier: Apache-2.0
// Views, blocks and results of a batch, operation by operation.
#include "runtime/execute/batch_parts.h"

#include <new>
#include <numeric>
#include <string>
#include <utility>

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// Allocates the work's own memory for a result. `lack`: the error's text where there is none.
Status allocate_output(const LocalTensor& tensor, base::Bytes bytes, collectives::Device* device,
                       const std::string& lack) {
  OutputBuffer& output = tensor.work->output;
  if (device != nullptr) {
    const auto memory = device->allocate(bytes.size());
    if (!memory.ok()) return Status::error(Code::kOutOfMemory, lack, memory.status());
    output.adopt(*memory, bytes.size());
    return {};
  }
  try {
    output.allocate(bytes.size());
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, lack);
  }
  return {};
}

}  // namespace

std::vector<base::TensorView> views_of(const ExecutableBatch& batch) {
  std::vector<base::TensorView> result;
  result.reserve(batch.tensors.size());
  for (const LocalTensorPtr& tensor : batch.tensors) {
    result.insert(result.end(), tensor->views.begin(), tensor->views.end());
  }
  return result;
}

collectives::Reduction reduction_of(const Signature& is) {
  return {is.dtype, is.op, is.prescale, is.postscale, is.compression};
}

Result<std::vector<base::TensorView>> gathered_blocks(const ExecutableBatch& batch,
                                                      std::int32_t rank,
                                                      collectives::Device* device) {
  const LocalTensor& tensor = *batch.tensors.front();
  Work& work = *tensor.work;
  const auto& rows = batch.agreed.first_dimensions;
  base::Shape row_shape = batch.agreed.signature.shape;
  row_shape[0] = 1;
  const std::int64_t row_elements = base::elements_of(row_shape).value().value();
  const base::Bytes bytes = payload_of(batch.agreed);
  RONDE_RETURN_IF_ERROR(allocate_output(
      tensor, bytes, device,
      "'" + tensor.name + "': no memory for the gathered " + std::to_string(bytes.value()) +
          " bytes, and the others are waiting: check the first dimensions"));
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

std::vector<base::TensorView> scattered_blocks(const ExecutableBatch& batch, std::int32_t rank,
                                               std::int32_t size) {
  const Signature& is = batch.agreed.signature;
  const base::TensorView& whole = batch.tensors.front()->views.front();
  const std::int64_t row = row_elements(is.shape).value();
  std::vector<base::TensorView> blocks;
  const std::byte* next = whole.input;
  for (std::int32_t r = 0; r < size; ++r) {
    base::TensorView block;
    block.elements = base::Elements(rows_of_rank(is, r, size) * row);
    block.dtype = is.dtype;
    block.input = next;
    if (r == rank) block.output = whole.output;
    next += block.bytes().value();
    blocks.push_back(block);
  }
  return blocks;
}

std::int64_t row_bytes_of(const Signature& is) {
  return row_elements(is.shape).value() * base::size_of(is.dtype);
}

Result<base::Bytes> store_received(const LocalTensor& tensor,
                                   std::span<const std::int64_t> received) {
  Work& work = *tensor.work;
  const std::int64_t row_bytes = row_bytes_of(tensor.signature);
  std::int64_t rows = 0;
  for (const std::int64_t of_rank : received) {
    // The number of rows must be checked by itself, because rows may have no bytes.
    if (of_rank < 0 || __builtin_add_overflow(rows, of_rank, &rows)) {
      return Status::error(Code::kInvalidArgument, "'" + tensor.name +
                                                       "': the other ranks send more than 2^63 - "
                                                       "1 rows; check their splits");
    }
  }
  const auto bytes = base::checked_product(rows, row_bytes);
  if (!bytes) {
    return Status::error(Code::kInvalidArgument,
                         "'" + tensor.name + "': the other ranks send more than 2^63 - 1 bytes");
  }
  work.output_dtype = tensor.signature.dtype;
  work.output_shape = tensor.signature.shape;
  work.output_shape[0] = rows;
  work.received_splits.assign(received.begin(), received.end());
  return base::Bytes(*bytes);
}

Result<std::span<std::byte>> received_rows(const LocalTensor& tensor,
                                           std::span<const std::int64_t> received,
                                           collectives::Device* device) {
  const auto bytes = store_received(tensor, received);
  RONDE_RETURN_IF_ERROR(bytes.status());
  RONDE_RETURN_IF_ERROR(
      allocate_output(tensor, *bytes, device,
                      "'" + tensor.name + "': no memory for the " + std::to_string(bytes->value()) +
                          " bytes that the other ranks send, and they are waiting: send less"));
  const OutputBuffer& output = tensor.work->output;
  return std::span<std::byte>(output.data(), output.size());
}

}  // namespace ronde::runtime
