// SPDX-License-Identifier: Apache-2.0
// The engine: see engine.h.
#include "runtime/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/engine/engine_patience.h"
#include "runtime/tensors/device_check.h"
#include "runtime/tensors/submission.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// Between two questions whether a stream can wait for a work of the device.
constexpr base::Nanoseconds kFirstPause = std::chrono::microseconds(20);
constexpr base::Nanoseconds kLongestPause = std::chrono::milliseconds(1);

}  // namespace

Engine::~Engine() {
  if (process_.is_mine()) {
    if (open_) close().ignore();
    // It rings the runner, which goes first.
    agent_.close_device();
  } else if (device_ != nullptr) {
    device_->forget();
  }
}

Status Engine::usable() const {
  if (process_.is_mine()) return {};
  return Status::error(
      Code::kUnsupported,
      "this engine was opened by the parent process: a forked child cannot use it");
}

Status Engine::may_drive() const {
  RONDE_RETURN_IF_ERROR(usable());
  if (caller_driven_.empty() || std::this_thread::get_id() == opener_) return {};
  // After a failure MPI is not called any more, and nothing is left to drive but that.
  if (job_->board().failed()) return {};
  return Status::error(Code::kUnsupported,
                       caller_driven_ +
                           ", so only the thread that opened the engine may wait or close; start "
                           "MPI with MPI_THREAD_SERIALIZED");
}

Result<Engine::WorkPtr> Engine::submit(Submission submission) {
  RONDE_RETURN_IF_ERROR(usable());
  const bool will_wait = submission.will_wait;
  const auto checked = check_submission(std::move(submission), rank_, size_);
  RONDE_RETURN_IF_ERROR(checked.status());
  const LocalTensorPtr& tensor = *checked;
  // A device that has been let go is asked nothing more.
  if (device_ != nullptr && agent_.failed()) return agent_.failure();
  Status placed = check_places(*tensor, device_.get(), no_device_);
  if (placed.ok() && on_device(tensor->signature)) placed = mark_ready(*tensor, *device_);
  // The device is at its end, and with it the job.
  if (placed.code() == Code::kTransport) agent_.fail(placed, rank_);
  // What a device says after the job has failed is not why it has.
  if (!placed.ok()) return agent_.failed() ? agent_.failure() : placed;
  tensor->signature.on_board =
      may_reduce_in_place(*tensor, job_->board().arena(local_rank_), small_bytes_);
  tensor->submitted = clock_->now();
  tensor->work = std::make_shared<Work>();
  tensor->work->name = tensor->name;
  tensor->work->of_device = on_device(tensor->signature);
  const Inside inside(submitting_threads_);
  std::vector<std::byte> request;
  const auto ticket = table_.insert(tensor, [&] { request = agent_.make_request(*tensor); });
  RONDE_RETURN_IF_ERROR(ticket.status());
  if (will_wait) runner_.will_wait();
  const Status announced = agent_.announce(*tensor, *ticket, std::move(request), !will_wait);
  // The others would wait for a tensor that they never hear of.
  if (!announced.ok()) agent_.fail(announced, rank_);
  return tensor->work;
}

Result<std::unique_ptr<BoardBuffer>> Engine::allocate(base::Bytes bytes) {
  RONDE_RETURN_IF_ERROR(usable());
  RONDE_RETURN_IF_ERROR(agent_.failure());
  return BoardBuffer::allocate(memory_, bytes);
}

Result<bool> Engine::wait(Work& work, base::Nanoseconds timeout) {
  return wait_done(work, clock_->after(timeout));
}

Result<bool> Engine::wait_done(Work& work, base::Instant deadline) {
  if (!process_.is_mine()) {
    if (work.completion.done()) return true;
    return usable();
  }
  if (const Status may = may_drive(); !may.ok()) {
    if (work.completion.done()) return true;
    return may;
  }
  return drive(work.completion, deadline);
}

// Even if it is done: a submit that promised to wait has silenced the bell, and the runner makes up
// for it.
bool Engine::drive(Completion& completion, base::Instant deadline) {
  const Inside inside(waiting_threads_);
  return runner_.wait(completion, deadline);
}

// Whether that stream can wait for that work.
Status Engine::check_waiting(const Work& work, void* stream) {
  if (!work.of_device) {
    return Status::error(Code::kInvalidArgument,
                         "'" + work.name +
                             "' is in host memory, which no stream can wait for: wait for it "
                             "without one");
  }
  const Status usable = device_->check_stream(stream);
  if (usable.ok() || work.completion.done()) return {};
  return Status::error(usable.code(), "'" + work.name + "': " + usable.message());
}

Status Engine::wait(Work& work, void* stream) {
  RONDE_RETURN_IF_ERROR(may_drive());
  Status can_wait = check_waiting(work, stream);
  if (!can_wait.ok()) {
    // The device is at its end, and with it the job.
    if (can_wait.code() == Code::kTransport) agent_.fail(can_wait, rank_);
    // Its submit may have promised that this thread drives next.
    static_cast<void>(drive(work.completion, clock_->now()));
    return can_wait;
  }
  const Inside inside(waiting_threads_);  // also between two looks
  const base::Instant deadline = clock_->after(config_.stall_failure + kVerdictMargin);
  const bool issued = drive(work.issued, deadline);
  // It is late, or there is nothing on the device to wait for.
  if (!issued || work.on_device == nullptr) return wait_until(work, deadline);
  RONDE_RETURN_IF_ERROR(wait_on_device(work, stream, deadline));
  // Nobody but the caller would look whether the job fails meanwhile.
  return caller_driven_.empty() ? Status() : wait_until(work, deadline);
}

Status Engine::wait_on_device(Work& work, void* stream, base::Instant deadline) {
  for (base::Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    // What is over needs no stream that waits for it.
    if (work.completion.done()) return result(work);
    const auto waits = work.on_device->wait_on(stream);
    if (waits.ok() && *waits) return {};
    if (!waits.ok()) {
      if (waits.status().code() != Code::kTransport) {
        return Status::error(waits.status().code(),
                             "'" + work.name + "': " + waits.status().message());
      }
      // The device is at its end, and with it the job.
      agent_.fail(waits.status(), rank_);
      return wait_until(work, deadline);
    }
    // It waits for other ranks, or for the agent, which this drives meanwhile.
    const base::Instant again = std::min(deadline, clock_->after(pause));
    if (!drive(work.completion, again) && again == deadline) return wait_until(work, deadline);
  }
}

Status Engine::wait(Work& work) {
  return wait_until(work, clock_->after(config_.stall_failure + kVerdictMargin));
}

Status Engine::wait_until(Work& work, base::Instant deadline) {
  auto done = wait_done(work, deadline);
  RONDE_RETURN_IF_ERROR(done.status());
  if (*done) return result(work);
  // The stall checks should have ended it. The caller's memory must be free when this returns.
  Status late = Status::error(Code::kDeadline,
                              "'" + work.name + "' did not end before RONDE_STALL_FAILURE_SECONDS");
  agent_.fail(late, -1);
  runner_.notify(true);
  done = wait(work, kFarewell);
  RONDE_RETURN_IF_ERROR(done.status());
  return *done ? result(work) : late;
}

Statistics Engine::statistics() const {
  Statistics result = agent_.statistics();
  result.background_wakes = runner_.counters().background_wakeups;
  return result;
}

}  // namespace ronde::runtime
