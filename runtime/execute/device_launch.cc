// SPDX-License-Identifier: Apache-2.0
// The launch as a collective: an exchange of splits where the operation needs one, then the call of
// the plug-in.
#include "runtime/execute/device_launch.h"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ronde::runtime {

using base::Code;
using base::Result;
using collectives::Collective;
using collectives::Device;
using collectives::StepResult;

namespace {

ronde_plugin_operation operation_of(Operation operation) {
  switch (operation) {
    case Operation::kAllreduce:
      return RONDE_PLUGIN_ALLREDUCE;
    case Operation::kBroadcast:
      return RONDE_PLUGIN_BROADCAST;
    case Operation::kAllgather:
      return RONDE_PLUGIN_ALLGATHER;
    case Operation::kReduceScatter:
      return RONDE_PLUGIN_REDUCE_SCATTER;
    case Operation::kAllToAll:
      return RONDE_PLUGIN_ALL_TO_ALL;
    case Operation::kBarrier:
    case Operation::kDeviceBarrier:
      return RONDE_PLUGIN_BARRIER;
  }
  return RONDE_PLUGIN_BARRIER;
}

// The blocks that go to each rank, followed by those that come from each.
std::vector<base::TensorView> exchanged_blocks(const LocalTensor& tensor) {
  const std::int64_t row = row_elements(tensor.signature.shape).value();
  std::vector<base::TensorView> blocks;
  const std::byte* from = tensor.views.front().input;
  for (const std::int64_t rows : tensor.splits) {
    base::TensorView block{from, nullptr, base::Elements(rows * row), tensor.signature.dtype};
    from += block.bytes().value();
    blocks.push_back(block);
  }
  std::byte* to = tensor.work->output.data();
  for (const std::int64_t rows : tensor.work->received_splits) {
    base::TensorView block{nullptr, to, base::Elements(rows * row), tensor.signature.dtype};
    to += block.bytes().value();
    blocks.push_back(block);
  }
  return blocks;
}

class Launch final : public Collective {
 public:
  Launch(const ExecutableBatch& batch, Device& device, collectives::DataPlane& plane,
         std::int32_t rank, std::int32_t size, Launched& launched)
      : batch_(batch),
        device_(device),
        plane_(plane),
        rank_(rank),
        size_(size),
        launched_(launched) {}

  Result<StepResult> step() override {
    if (batch_.agreed.signature.operation == Operation::kAllToAll) {
      const auto exchanged = exchange_splits();
      if (!exchanged.ok() || *exchanged != StepResult::kDone) return exchanged;
    }
    RONDE_ASSIGN_OR_RETURN(const auto tensors, parts());
    return launch(tensors);
  }

 private:
  // Every rank sends to every other the number of rows that it will receive.
  Result<StepResult> exchange_splits() {
    const LocalTensor& tensor = *batch_.tensors.front();
    if (exchange_ == nullptr) {
      received_.resize(tensor.splits.size());
      const base::Bytes row(sizeof(std::int64_t));
      exchange_ = plane_.all_to_all(
          {reinterpret_cast<const std::byte*>(tensor.splits.data()),
           std::vector<std::int64_t>(tensor.splits.size(), 1), row},
          [this](std::span<const std::int64_t>) -> Result<std::span<std::byte>> {
            return std::as_writable_bytes(std::span(received_));
          },
          batch_.sequence);
    }
    auto stepped = exchange_->step();
    if (!stepped.ok() || *stepped != StepResult::kDone) return stepped;
    const auto memory = received_rows(tensor, received_, &device_);
    RONDE_RETURN_IF_ERROR(memory.status());
    return StepResult::kDone;
  }

  Result<std::vector<ronde_plugin_tensor>> parts() {
    const LocalTensor& first = *batch_.tensors.front();
    std::vector<ronde_plugin_tensor> tensors;
    const auto add = [&](const std::vector<base::TensorView>& blocks) {
      for (const auto& block : blocks) tensors.push_back(plugin_tensor(block, first.ready[0]));
      return tensors;
    };
    switch (batch_.agreed.signature.operation) {
      case Operation::kAllgather: {
        RONDE_ASSIGN_OR_RETURN(const auto blocks, gathered_blocks(batch_, rank_, &device_));
        return add(blocks);
      }
      case Operation::kReduceScatter:
        return add(scattered_blocks(batch_, rank_, size_));
      case Operation::kAllToAll:
        return add(exchanged_blocks(first));
      case Operation::kBarrier:
      case Operation::kDeviceBarrier:
        return add({base::TensorView{}});
      case Operation::kAllreduce:
      case Operation::kBroadcast:
        break;
    }
    for (const LocalTensorPtr& tensor : batch_.tensors) {
      for (std::size_t i = 0; i < tensor->views.size(); ++i) {
        tensors.push_back(plugin_tensor(tensor->views[i], tensor->ready[i]));
      }
    }
    return tensors;
  }

  Result<StepResult> launch(const std::vector<ronde_plugin_tensor>& tensors) {
    const Signature& is = batch_.agreed.signature;
    ronde_plugin_batch batch{};
    batch.struct_size = sizeof batch;
    batch.sequence = batch_.sequence;
    batch.operation = operation_of(is.operation);
    batch.dtype = static_cast<std::int32_t>(is.dtype);
    batch.op = static_cast<std::int32_t>(is.op);
    batch.root = is.root;
    batch.compression = static_cast<std::int32_t>(is.compression);
    batch.tensor_count = base::narrow<std::int32_t>(tensors.size());
    batch.tensors = tensors.data();
    batch.prescale = is.prescale;
    batch.postscale = is.postscale;
    auto work = device_.execute(batch);
    if (work.ok()) {
      launched_.work = std::move(*work);
    } else if (work.status().code() == Code::kUnsupported) {
      launched_.refused = work.status();
    } else {
      return work.status();
    }
    return StepResult::kDone;
  }

  const ExecutableBatch& batch_;
  Device& device_;
  collectives::DataPlane& plane_;
  const std::int32_t rank_;
  const std::int32_t size_;
  Launched& launched_;
  std::vector<std::int64_t> received_;
  collectives::DataPlane::CollectivePtr
      exchange_;  // writes into received_, so it is destroyed first
};

}  // namespace

ronde_plugin_tensor plugin_tensor(const base::TensorView& view,
                                  const collectives::ReadyMarkPtr& ready) {
  return {view.input, view.output, view.elements.value(),
          ready == nullptr ? nullptr : ready->get()};
}

std::unique_ptr<Collective> launch_on_device(const ExecutableBatch& batch, Device& device,
                                             collectives::DataPlane& plane, std::int32_t rank,
                                             std::int32_t size, Launched& launched) {
  return std::make_unique<Launch>(batch, device, plane, rank, size, launched);
}

}  // namespace ronde::runtime
