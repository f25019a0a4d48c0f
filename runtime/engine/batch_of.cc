// SPDX-License-Identifier: Apache-2.0
// From tensors to an exchange, and the memory of its result.
#include "runtime/engine/batch_of.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

namespace ronde::runtime {

using base::Code;
using base::Status;

namespace {

// Allocates the work's own memory for a result. `lack`: the error's text where there is none.
Status allocate_output(OutputBuffer& output, base::Bytes bytes, collectives::Device* device,
                       const std::string& lack) {
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

// The rows of the blocks of all ranks, as far as all of them know them, else those that this rank
// gives to each.
std::vector<std::int64_t> rows_of(const AgreedTensor& agreed, const LocalTensor& tensor,
                                  std::int32_t size) {
  const base::OperationRow& what = row(agreed.signature.operation);
  if (!what.has_rows()) return {};
  if (what.has_own_rows()) return tensor.splits;
  if (what.makes_result()) return agreed.first_dimensions;
  std::vector<std::int64_t> rows;
  rows.reserve(base::narrow<std::size_t>(size));
  for (std::int32_t r = 0; r < size; ++r) rows.push_back(rows_of_rank(agreed.signature, r, size));
  return rows;
}

// Allocates the memory of a tensor's result, so many rows from each rank, and stores in its work
// what the caller has to know of it. The memory is the device's, if one is given.
base::Result<std::span<std::byte>> make_result(const LocalTensor& tensor,
                                               std::span<const std::int64_t> rows,
                                               collectives::Device* device) {
  const Signature& is = tensor.signature;
  const auto wrong = [&](Code code, const std::string& what) {
    return Status::error(code, "'" + tensor.name + "': " + what);
  };
  std::int64_t sum = 0;
  for (const std::int64_t of_rank : rows) {
    // The number of rows must be checked by itself, because rows may have no bytes.
    if (of_rank < 0 || __builtin_add_overflow(sum, of_rank, &sum)) {
      return wrong(Code::kInvalidArgument,
                   "the other ranks send more than 2^63 - 1 rows; check their splits");
    }
  }
  const auto bytes =
      base::checked_product(sum, row_elements(is.shape).value() * base::size_of(is.dtype));
  if (!bytes) {
    return wrong(Code::kInvalidArgument, "the other ranks send more than 2^63 - 1 bytes");
  }
  const bool own = row(is.operation).has_own_rows();
  Work& work = *tensor.work;
  work.output_dtype = is.dtype;
  work.output_shape = is.shape;
  work.output_shape[0] = sum;
  if (own) work.received_splits.assign(rows.begin(), rows.end());
  // The caller's memory has room for as many rows from each as this rank gives, and its own rows
  // may lie in it where they belong then alone.
  std::byte* const given = own ? nullptr : tensor.views.front().output;
  const auto is_even = [&](std::int64_t of_rank) { return of_rank == is.shape[0]; };
  if (given != nullptr && std::ranges::all_of(rows, is_even)) {
    work.output.lend(given, base::Bytes(*bytes).size());
    return std::span<std::byte>(given, work.output.size());
  }
  const std::string size = std::to_string(*bytes) + " bytes";
  RONDE_RETURN_IF_ERROR(allocate_output(
      work.output, base::Bytes(*bytes), device,
      "'" + tensor.name + "': no memory for the " +
          (own ? size + " that the other ranks send, and they are waiting: send less"
               : "gathered " + size + ", and the others are waiting: check the first dimensions")));
  return std::span<std::byte>(work.output.data(), work.output.size());
}

// What the absent give is neutral already, so it is not scaled; weights say the rest themselves.
void go_on_without(const std::vector<std::int32_t>& absent, std::int32_t size, bool over_all,
                   collectives::Reduction& how) {
  if (how.prescale != 1.0) {
    how.prescales.assign(base::narrow<std::size_t>(size), how.prescale);
    for (const std::int32_t rank : absent) how.prescales[base::narrow<std::size_t>(rank)] = 1.0;
  }
  if (!over_all) how.divisor = static_cast<double>(size - std::ssize(absent));
}

// The weights of this rank, and whoever hears that a tensor has none to go by.
collectives::OwnWeights weights_of(const TensorTable::Claimed& claimed, std::int32_t size) {
  collectives::OwnWeights weights;
  weights.ranks = size;
  std::vector<LocalTensorPtr> owners;  // by view
  for (const LocalTensorPtr& tensor : claimed.tensors) {
    weights.of_tensors.insert(weights.of_tensors.end(), tensor->weights.begin(),
                              tensor->weights.end());
    owners.insert(owners.end(), tensor->views.size(), tensor);
  }
  weights.refuse = [owners = std::move(owners)](std::size_t view, const Status& why) {
    LocalTensor& tensor = *owners[view];
    tensor.refused = Status::error(why.code(), "'" + tensor.name + "': " + why.message());
  };
  return weights;
}

}  // namespace

Batch batch_of(std::uint64_t sequence, const TensorTable::Claimed& claimed, std::int32_t size,
               const std::shared_ptr<collectives::Device>& device, bool over_all) {
  const Signature& is = claimed.agreed.signature;
  Batch batch;
  batch.of_device = on_device(is);
  collectives::Exchange& exchange = batch.exchange;
  exchange.operation = is.operation;
  exchange.sequence = sequence;
  exchange.how = {is.dtype, is.op, is.prescale, is.postscale, is.compression};
  if (!claimed.agreed.absent.empty()) {
    go_on_without(claimed.agreed.absent, size, over_all, exchange.how);
  }
  exchange.root = is.root;
  exchange.on_board = is.on_board;
  exchange.tensors.reserve(claimed.tensors.size());
  for (const LocalTensorPtr& tensor : claimed.tensors) {
    exchange.tensors.insert(exchange.tensors.end(), tensor->views.begin(), tensor->views.end());
    batch.ready.insert(batch.ready.end(), tensor->ready.begin(), tensor->ready.end());
  }
  if (is.weighted) exchange.weights = weights_of(claimed, size);
  // What a barrier of devices waits for belongs to a tensor without elements.
  exchange.tensors.resize(std::max(exchange.tensors.size(), batch.ready.size()));
  const LocalTensorPtr& first = claimed.tensors.front();
  exchange.rows = rows_of(claimed.agreed, *first, size);
  if (exchange.what().has_rows()) exchange.row = row_elements(is.shape);
  if (exchange.what().makes_result()) {
    exchange.result = [first, on = batch.of_device ? device
                                                   : nullptr](std::span<const std::int64_t> rows) {
      return make_result(*first, rows, on.get());
    };
  }
  return batch;
}

}  // namespace ronde::runtime
