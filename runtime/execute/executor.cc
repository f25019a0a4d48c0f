// SPDX-License-Identifier: Apache-2.0
// Making and stepping the collective of the current batch, and polling those of the device.
#include "runtime/execute/executor.h"

#include <utility>

#include "collectives/plane/weighted.h"
#include "runtime/drive/idle.h"

namespace ronde::runtime {

using base::Result;

Executor::Executor(std::unique_ptr<collectives::DataPlane> plane, std::int32_t rank, int watch)
    : plane_(std::move(plane)), rank_(rank), watch_(watch) {}

Executor::~Executor() { close_device(); }

void Executor::use(std::shared_ptr<collectives::Device> device, bool direct, bool shared) {
  device_ = std::move(device);
  shared_ = shared;
  direct_ = direct;
}

Result<collectives::DataPlane::CollectivePtr> Executor::make(const Batch& batch) {
  if (!batch.of_device) return collectives::make_collective(*plane_, batch.exchange);
  if (device_ == nullptr) {
    return base::Status::error(base::Code::kInternal, "a batch for devices where there is none");
  }
  if (!direct_) return stage(batch, *device_, *plane_, lanes_, rank_);
  return launch_on_device(batch, *device_, *plane_, rank_, launched_);
}

Result<bool> Executor::step(std::vector<FinishedBatch>& finished) {
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
void Executor::conclude(std::vector<FinishedBatch>& finished) {
  current_.reset();
  Launched launched = std::exchange(launched_, {});
  const std::uint64_t sequence = current().sequence;
  waiting_.pop_front();
  if (launched.work == nullptr) {
    finished.push_back({sequence, std::move(launched.refused)});
    return;
  }
  issued_.push_back({sequence, launched.work});
  on_device_.push_back({sequence, std::move(launched.work)});
}

Result<bool> Executor::poll_device(std::vector<FinishedBatch>& finished) {
  bool some = false;
  while (!on_device_.empty()) {
    RONDE_ASSIGN_OR_RETURN(const auto done, on_device_.front().work->poll());
    if (!done) break;
    finished.push_back({on_device_.front().sequence});
    on_device_.pop_front();
    some = true;
  }
  return some;
}

bool Executor::awaits_device() const {
  return !on_device_.empty() || (current_ != nullptr && waiting_.front().of_device);
}

void Executor::abandon(const std::string& why) {
  // The device is aborted first, because it reads and writes memory that the batches below keep.
  if (device_ != nullptr && !shared_) device_->abort(why);
  current_.reset();
  launched_ = {};
  waiting_.clear();
  on_device_.clear();
  issued_.clear();
}

void Executor::close_device() {
  if (device_ == nullptr) return;
  if (busy() || !on_device_.empty()) abandon("the engine was closed");
  lanes_.memory.clear();
  if (!shared_) device_->close();
  device_.reset();
}

}  // namespace ronde::runtime
