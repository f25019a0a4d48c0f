// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensors/ended_works.h"

#include <cstddef>
#include <utility>

namespace ronde::runtime {

using base::MutexLock;
using base::Status;

namespace {

// How many failed works are remembered until a caller asks for their results.
constexpr std::size_t kFailedWorks = 1024;

}  // namespace

// The name is released before the waiter is notified, so that it may submit the name again at once.
void EndedWorks::end(const LocalTensorPtr& tensor, const Status& status, bool of_job) {
  table_.remove(*tensor);
  tensor->ready.clear();
  // The stall watch may keep the tensor for long; its result belongs to the caller alone.
  const std::shared_ptr<Work> work = std::move(tensor->work);
  if (!status.ok() && !of_job) remember(*work, status);
  work->status = status;
  if (work->of_device) complete_once(work->issued);
  complete_(work->completion);
}

void EndedWorks::issue(const LocalTensor& tensor, const collectives::DeviceWorkPtr& on_device) {
  tensor.work->on_device = on_device;
  complete_(tensor.work->issued);
}

void EndedWorks::complete_once(Completion& completion) {
  if (!completion.done()) complete_(completion);
}

void EndedWorks::end_message(Work& work, const Status& status, bool of_job) {
  if (!status.ok() && !of_job) remember(work, status);
  work.status = status;
  complete_(work.completion);
}

void EndedWorks::remember(const Status& status) {
  Work nobody;
  remember(nobody, status);
}

// Called before the work is done: afterwards the thread that waits for it owns it.
void EndedWorks::remember(Work& work, const Status& status) {
  const MutexLock lock(mutex_);
  if (drain_wanted_.load(std::memory_order_acquire)) {
    if (while_closing_++ == 0) first_failed_ = status;
    return;
  }
  // Callers ask for most results at once; where a program never asks, the first are enough.
  if (reports_.size() >= kFailedWorks) {
    std::erase_if(reports_, [](const FailedWork& one) { return one.heard->load(); });
  }
  if (reports_.size() >= kFailedWorks) return;
  work.heard = std::make_shared<std::atomic<bool>>(false);
  reports_.push_back({work.heard, status});
}

FailedWorks EndedWorks::failed() const {
  const MutexLock lock(mutex_);
  FailedWorks result{while_closing_, 0, first_failed_};
  for (auto one = reports_.rbegin(); one != reports_.rend(); ++one) {
    if (one->heard->load()) continue;
    ++result.unheard;
    result.first = one->status;
  }
  return result;
}

}  // namespace ronde::runtime
