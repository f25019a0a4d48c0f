// SPDX-License-Identifier: Apache-2.0
// Ends the works of a rank, and remembers those that failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "runtime/drive/agent.h"
#include "runtime/tensors/local_tensor.h"
#include "runtime/tensors/tensor_table.h"
#include "runtime/tensors/work.h"

namespace ronde::runtime {

// Works that ended in an error: after want_drained(), or before without a caller who asked for it.
struct FailedWorks {
  std::uint64_t while_closing = 0;
  std::uint64_t unheard = 0;
  base::Status first;  // the error of the first one; ok: there are none
};

// Shares the table of the tensors in flight.
//
// Thread safety: failed(), want_drained() and drained() from any thread; the rest is for the agent.
class EndedWorks {
 public:
  // complete: finishes a completion (AgentRunner::complete).
  using Complete = std::function<void(Completion&)>;
  EndedWorks(TensorTable& table, Complete complete)
      : table_(table), complete_(std::move(complete)) {}

  // Ends a tensor, whose work waiters may destroy from then on. of_job: the job has failed, whose
  // error every call returns.
  void end(const LocalTensorPtr& tensor, const base::Status& status, bool of_job);
  // The device has the tensor's batch; streams can wait for `on_device`.
  void issue(const LocalTensor& tensor, const collectives::DeviceWorkPtr& on_device);
  void complete_once(Completion& completion);
  // Ends a message between two ranks, which is in no table.
  void end_message(Work& work, const base::Status& status, bool of_job);
  // An error for which there is no work any more, or never was one that waits.
  void remember(const base::Status& status);

  [[nodiscard]] FailedWorks failed() const;

  // Done when nothing is in flight here; check_drained() finishes it after want_drained().
  [[nodiscard]] Completion& drained() { return drained_; }
  void want_drained() { drain_wanted_.store(true, std::memory_order_release); }
  void check_drained() {
    if (drain_wanted_.load(std::memory_order_acquire) && table_.empty()) complete_once(drained_);
  }

 private:
  void remember(Work& work, const base::Status& status);

  TensorTable& table_;
  const Complete complete_;
  Completion drained_;
  std::atomic<bool> drain_wanted_{false};
  mutable base::Mutex mutex_;
  base::Status first_failed_ RONDE_GUARDED_BY(mutex_);
  std::uint64_t while_closing_ RONDE_GUARDED_BY(mutex_) = 0;
  // Failed works of a job that lives on, until a caller asks for their results.
  struct FailedWork {
    std::shared_ptr<std::atomic<bool>> heard;
    base::Status status;
  };
  std::vector<FailedWork> reports_ RONDE_GUARDED_BY(mutex_);
};

}  // namespace ronde::runtime
