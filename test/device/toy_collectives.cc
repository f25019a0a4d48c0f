// SPDX-License-Identifier: Apache-2.0
// Waiting for the streams of all ranks, and computing the results on the CPU.
#include "test/device/toy_collectives.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "base/dtype.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/reduce.h"

namespace ronde::toy {

namespace {

using base::DType;
using Bytes = std::vector<std::byte>;
using Calls = std::vector<const Call*>;

// A result, and where it goes when nobody reads inputs any more.
struct Result {
  void* to;
  Bytes bytes;
};

collectives::Reduction reduction_of(const ronde_plugin_batch& batch) {
  return {.dtype = static_cast<DType>(batch.dtype),
          .op = static_cast<base::ReduceOp>(batch.op),
          .prescale = batch.prescale,
          .postscale = batch.postscale,
          .compression = static_cast<base::Compression>(batch.compression)};
}

// The sum over all ranks of tensor `index`.
Bytes reduced(const Calls& calls, std::size_t index) {
  const collectives::Reduction what = reduction_of(calls.front()->batch);
  const DType wire = base::wire_dtype(what.dtype, what.compression);
  const std::int64_t elements = calls.front()->tensors[index].elements;
  const auto wire_bytes = static_cast<std::size_t>(elements * base::size_of(wire));
  std::vector<Bytes> contributions;
  std::vector<const std::byte*> sources;
  for (const Call* const call : calls) {
    const auto* const input = static_cast<const std::byte*>(call->tensors[index].input);
    Bytes& own = contributions.emplace_back(wire_bytes);
    if (wire == what.dtype) {
      if (wire_bytes > 0) std::memcpy(own.data(), input, wire_bytes);
    } else {
      collectives::narrow_to_wire(wire, own.data(), input, elements,
                                  collectives::StoreKind::kTemporal);
    }
    sources.push_back(own.data());
  }
  Bytes sum(wire_bytes);
  std::byte* const destination = sum.data();
  collectives::kernels_for(wire, what.op)
      .of_host(sources, {&destination, 1}, elements,
               collectives::scaling_of(what, static_cast<int>(calls.size())));
  if (wire == what.dtype) return sum;
  Bytes wide(static_cast<std::size_t>(elements * base::size_of(what.dtype)));
  collectives::widen_from_wire(wire, wide.data(), sum.data(), elements);
  return wide;
}

Bytes copied(const ronde_plugin_tensor& tensor, std::int32_t dtype) {
  const auto* const input = static_cast<const std::byte*>(tensor.input);
  return {input, input + tensor.elements * size_of_dtype(dtype)};
}

// What this rank gets.
std::vector<Result> results_of(const Calls& calls, const Call& mine) {
  const auto at = [](std::int32_t rank) { return static_cast<std::size_t>(rank); };
  const std::int32_t dtype = mine.batch.dtype;
  const std::size_t me = at(mine.rank);
  const std::size_t size = calls.size();
  std::vector<Result> results;
  switch (mine.batch.operation) {
    case RONDE_PLUGIN_ALLREDUCE:
      for (std::size_t i = 0; i < mine.tensors.size(); ++i) {
        results.push_back({mine.tensors[i].output, reduced(calls, i)});
      }
      break;
    case RONDE_PLUGIN_BROADCAST:
      for (std::size_t i = 0; i < mine.tensors.size(); ++i) {
        results.push_back(
            {mine.tensors[i].output, copied(calls[at(mine.batch.root)]->tensors[i], dtype)});
      }
      break;
    case RONDE_PLUGIN_ALLGATHER:
      for (std::size_t from = 0; from < size; ++from) {
        results.push_back({mine.tensors[from].output, copied(calls[from]->tensors[from], dtype)});
      }
      break;
    case RONDE_PLUGIN_REDUCE_SCATTER:
      results.push_back({mine.tensors[me].output, reduced(calls, me)});
      break;
    case RONDE_PLUGIN_ALL_TO_ALL:
      for (std::size_t from = 0; from < size; ++from) {
        results.push_back(
            {mine.tensors[size + from].output, copied(calls[from]->tensors[me], dtype)});
      }
      break;
    default:
      break;
  }
  return results;
}

}  // namespace

std::int64_t size_of_dtype(std::int32_t dtype) { return base::size_of(static_cast<DType>(dtype)); }

Hub* Hub::make(std::int32_t size) { return new Hub(size); }

std::shared_ptr<Hub> Hub::take(Hub* hub) {
  // Whoever comes first makes the one that all share.
  static std::mutex mutex;
  static std::map<Hub*, std::pair<std::shared_ptr<Hub>, std::int32_t>> offered;
  const std::lock_guard lock(mutex);
  auto& [shared, taken] = offered[hub];
  if (shared == nullptr) shared.reset(hub);
  std::shared_ptr<Hub> result = shared;
  if (++taken == result->size_) offered.erase(hub);
  return result;
}

std::string Hub::run(const Call& call) {
  std::unique_lock lock(mutex_);
  if (aborted_) return why_;
  Meeting& meeting = meetings_[call.number];
  meeting.calls.resize(static_cast<std::size_t>(size_));
  meeting.calls[static_cast<std::size_t>(call.rank)] = &call;
  ++meeting.come;
  changed_.notify_all();
  changed_.wait(lock, [&] { return aborted_ || meeting.come == size_; });
  if (meeting.come != size_) return why_;
  lock.unlock();
  const std::vector<Result> results = results_of(meeting.calls, call);
  lock.lock();
  // All have come, so all will have computed: nobody leaves while others read its inputs.
  ++meeting.computed;
  changed_.notify_all();
  changed_.wait(lock, [&] { return meeting.computed == size_; });
  if (++meeting.gone == size_) meetings_.erase(call.number);
  lock.unlock();
  for (const Result& result : results) {
    if (!result.bytes.empty()) std::memcpy(result.to, result.bytes.data(), result.bytes.size());
  }
  return {};
}

void Hub::abort(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) why_ = why;
    aborted_ = true;
  }
  changed_.notify_all();
}

}  // namespace ronde::toy
