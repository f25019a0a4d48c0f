// SPDX-License-Identifier: Apache-2.0
// Executing batches: see executor.h.
#include "runtime/execute/executor.h"

#include <span>
#include <utility>

#include "runtime/drive/idle.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

Executor::Executor(std::unique_ptr<collectives::DataPlane> plane, std::int32_t rank,
                   std::int32_t size, int watch)
    : plane_(std::move(plane)), rank_(rank), size_(size), watch_(watch) {}

Executor::~Executor() { close_device(); }

void Executor::use(std::shared_ptr<collectives::Device> device, bool direct) {
  device_ = std::move(device);
  direct_ = direct;
}

Result<collectives::DataPlane::CollectivePtr> Executor::make(const ExecutableBatch& batch) {
  const Signature& is = batch.agreed.signature;
  if (on_device(is)) return make_on_device(batch);
  switch (is.operation) {
    case Operation::kAllreduce:
      return plane_->allreduce(views_of(batch), reduction_of(is), is.on_board, batch.sequence);
    case Operation::kBroadcast:
      return plane_->broadcast(views_of(batch), is.root, batch.sequence);
    case Operation::kAllgather: {
      const auto blocks = gathered_blocks(batch, rank_, nullptr);
      RONDE_RETURN_IF_ERROR(blocks.status());
      return plane_->allgather(is.dtype, *blocks, batch.sequence);
    }
    case Operation::kBarrier:
    case Operation::kDeviceBarrier:
      return plane_->barrier(batch.sequence);
    case Operation::kReduceScatter:
      return plane_->reduce_scatter(scattered_blocks(batch, rank_, size_), reduction_of(is),
                                    batch.sequence);
    case Operation::kAllToAll:
      return make_all_to_all(batch);
  }
  return Status::error(Code::kInternal, "a batch with an unknown operation");
}

Result<collectives::DataPlane::CollectivePtr> Executor::make_on_device(
    const ExecutableBatch& batch) {
  if (device_ == nullptr) {
    return Status::error(Code::kInternal, "a batch for devices where there is none");
  }
  if (!direct_) return stage(batch, *device_, *plane_, lanes_, rank_, size_);
  return launch_on_device(batch, *device_, *plane_, rank_, size_, launched_);
}

collectives::DataPlane::CollectivePtr Executor::make_all_to_all(const ExecutableBatch& batch) {
  const LocalTensorPtr& tensor = batch.tensors.front();
  return plane_->all_to_all(
      {tensor->views.front().input, tensor->splits, base::Bytes(row_bytes_of(tensor->signature))},
      [tensor](std::span<const std::int64_t> received) {
        return received_rows(*tensor, received, nullptr);
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
  conclude(finished);
  return true;
}

// The current batch has been done, or given to the device.
void Executor::conclude(std::vector<ExecutableBatch>& finished) {
  current_.reset();
  Launched launched = std::exchange(launched_, {});
  ExecutableBatch batch = std::move(waiting_.front());
  waiting_.pop_front();
  if (launched.work == nullptr) {
    batch.status = std::move(launched.refused);
    finished.push_back(std::move(batch));
    return;
  }
  for (const LocalTensorPtr& tensor : batch.tensors) {
    tensor->work->on_device = launched.work;
    issued_.push_back(tensor);
  }
  under_way_.push_back({std::move(batch), std::move(launched.work)});
}

Result<bool> Executor::land(std::vector<ExecutableBatch>& finished) {
  bool landed = false;
  while (!under_way_.empty()) {
    const auto over = under_way_.front().work->poll();
    RONDE_RETURN_IF_ERROR(over.status());
    if (!*over) break;
    finished.push_back(std::move(under_way_.front().batch));
    under_way_.pop_front();
    landed = true;
  }
  return landed;
}

bool Executor::awaits_device() const {
  return !under_way_.empty() ||
         (current_ != nullptr && on_device(waiting_.front().agreed.signature));
}

void Executor::abandon(const std::string& why) {
  // First the device: it reads and writes what the others point at.
  if (device_ != nullptr) device_->abort(why);
  current_.reset();
  launched_ = {};
  waiting_.clear();
  under_way_.clear();
  issued_.clear();
}

void Executor::close_device() {
  if (device_ == nullptr) return;
  if (busy() || !under_way_.empty()) abandon("the engine was closed");
  lanes_.memory.clear();
  device_->close();
  device_.reset();
}

}  // namespace ronde::runtime
