// SPDX-License-Identifier: Apache-2.0
// The launch as a collective: an exchange of rows where the operation needs one, then the call of
// the plug-in.
#include "runtime/execute/device_launch.h"

#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace ronde::runtime {

using base::Result;
using collectives::Collective;
using collectives::Device;
using collectives::Exchange;
using collectives::StepResult;

namespace {

class Launch final : public Collective {
 public:
  Launch(const Batch& batch, Device& device, collectives::DataPlane& plane, std::int32_t rank,
         Launched& launched)
      : batch_(batch),
        exchange_(batch.exchange),
        device_(device),
        plane_(plane),
        rank_(rank),
        launched_(launched) {}

  Result<StepResult> step() override {
    if (exchange_.what().has_own_rows()) {
      const auto told = tell_rows();
      if (!told.ok() || *told != StepResult::kDone) return told;
    }
    RONDE_ASSIGN_OR_RETURN(const auto tensors, parts());
    return launch(tensors);
  }

 private:
  // Every rank sends to every other the number of rows that it will receive.
  Result<StepResult> tell_rows() {
    if (telling_ == nullptr) {
      received_.resize(exchange_.rows.size());
      const auto* const sent = reinterpret_cast<const std::byte*>(exchange_.rows.data());
      const base::Elements count(std::ssize(exchange_.rows));
      Exchange numbers{.operation = exchange_.operation,
                       .sequence = exchange_.sequence,
                       .tensors = {{sent, nullptr, count, base::DType::kI64}},
                       .how = {.dtype = base::DType::kI64},
                       .rows = std::vector<std::int64_t>(exchange_.rows.size(), 1),
                       .row = base::Elements(1),
                       .result = [this](auto) -> Result<std::span<std::byte>> {
                         return std::as_writable_bytes(std::span(received_));
                       }};
      RONDE_ASSIGN_OR_RETURN(telling_, plane_.make(numbers));
    }
    return telling_->step();
  }

  // The tensors, or their blocks: all those that go out, and then all that come in, where there are
  // both.
  Result<std::vector<base::TensorView>> blocks() {
    if (!exchange_.what().has_rows()) return exchange_.tensors;
    if (!exchange_.what().has_own_rows()) return blocks_of(exchange_, rank_);
    RONDE_ASSIGN_OR_RETURN(const auto memory, exchange_.result(received_));
    auto blocks = cut(exchange_, exchange_.rows, exchange_.tensors.front().input, nullptr);
    const auto incoming = cut(exchange_, received_, nullptr, memory.data());
    blocks.insert(blocks.end(), incoming.begin(), incoming.end());
    return blocks;
  }

  Result<std::vector<ronde_plugin_tensor>> parts() {
    RONDE_ASSIGN_OR_RETURN(const auto views, blocks());
    std::vector<ronde_plugin_tensor> tensors;
    tensors.reserve(views.size());
    for (std::size_t i = 0; i < views.size(); ++i) {
      const bool has_own_mark = batch_.ready.size() == views.size();
      tensors.push_back(plugin_tensor(views[i], batch_.ready[has_own_mark ? i : 0]));
    }
    return tensors;
  }

  Result<StepResult> launch(const std::vector<ronde_plugin_tensor>& tensors) {
    const collectives::Reduction& how = exchange_.how;
    ronde_plugin_batch batch{};
    batch.struct_size = sizeof batch;
    batch.sequence = exchange_.sequence;
    batch.operation = exchange_.what().code;
    batch.dtype = static_cast<std::int32_t>(how.dtype);
    batch.op = static_cast<std::int32_t>(how.op);
    batch.root = exchange_.root;
    batch.compression = static_cast<std::int32_t>(how.compression);
    batch.tensor_count = base::narrow<std::int32_t>(tensors.size());
    batch.tensors = tensors.data();
    batch.prescale = how.prescale;
    batch.postscale = how.postscale;
    auto work = device_.execute(batch);
    if (work.ok()) {
      launched_.work = std::move(*work);
    } else if (work.status().code() == base::Code::kUnsupported) {
      launched_.refused = work.status();
    } else {
      return work.status();
    }
    return StepResult::kDone;
  }

  const Batch& batch_;
  const Exchange& exchange_;
  Device& device_;
  collectives::DataPlane& plane_;
  const std::int32_t rank_;
  Launched& launched_;
  std::vector<std::int64_t> received_;
  // It writes into received_, so it is destroyed first.
  collectives::DataPlane::CollectivePtr telling_;
};

}  // namespace

ronde_plugin_tensor plugin_tensor(const base::TensorView& view,
                                  const collectives::ReadyMarkPtr& ready) {
  return {view.input, view.output, view.elements.value(),
          ready == nullptr ? nullptr : ready->get()};
}

std::unique_ptr<Collective> launch_on_device(const Batch& batch, Device& device,
                                             collectives::DataPlane& plane, std::int32_t rank,
                                             Launched& launched) {
  return std::make_unique<Launch>(batch, device, plane, rank, launched);
}

}  // namespace ronde::runtime
