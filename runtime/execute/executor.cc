// SPDX-License-Identifier: Apache-2.0
// Making and stepping the collective of the current batch, and polling those of the device.
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
      RONDE_ASSIGN_OR_RETURN(const auto blocks, gathered_blocks(batch, rank_, nullptr));
      return plane_->allgather(is.dtype, blocks, batch.sequence);
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
    RONDE_ASSIGN_OR_RETURN(current_, make(waiting_.front()));
  }
  auto result = current_->step();
  // Where the peers are about to post, retrying here is much cheaper than a whole do_work().
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

// Called when the current batch is finished or has been given to the device.
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
  device_batches_.push_back({std::move(batch), std::move(launched.work)});
}

Result<bool> Executor::poll_device(std::vector<ExecutableBatch>& finished) {
  bool some = false;
  while (!device_batches_.empty()) {
    RONDE_ASSIGN_OR_RETURN(const auto done, device_batches_.front().work->poll());
    if (!done) break;
    finished.push_back(std::move(device_batches_.front().batch));
    device_batches_.pop_front();
    some = true;
  }
  return some;
}

bool Executor::awaits_device() const {
  return !device_batches_.empty() ||
         (current_ != nullptr && on_device(waiting_.front().agreed.signature));
}

void Executor::abandon(const std::string& why) {
  // The device is aborted first, because it reads and writes memory that the batches below keep.
  if (device_ != nullptr) device_->abort(why);
  current_.reset();
  launched_ = {};
  waiting_.clear();
  device_batches_.clear();
  issued_.clear();
}

void Executor::close_device() {
  if (device_ == nullptr) return;
  if (busy() || !device_batches_.empty()) abandon("the engine was closed");
  lanes_.memory.clear();
  device_->close();
  device_.reset();
}

}  // namespace ronde::runtime
