// SPDX-License-Identifier: Apache-2.0
// An open engine: submit, wait, close. engine_start.cc opens it.
#include "runtime/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/tensors/device_check.h"
#include "runtime/tensors/submission.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// The stall deadline ends every work; a waiter gives that error this much longer to arrive.
constexpr base::Nanoseconds kVerdictMargin = std::chrono::seconds(10);

// How often close() looks whether other threads have left the engine, for which no bell rings.
constexpr auto kLeavePoll = std::chrono::microseconds(200);

// Counts a thread that is inside the engine, so that close() waits until it has left.
class Inside {
 public:
  explicit Inside(std::atomic<std::int32_t>& threads) : threads_(threads) {
    threads_.fetch_add(1, std::memory_order_acq_rel);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { threads_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  std::atomic<std::int32_t>& threads_;
};

// The pause between two questions whether a stream can wait for a work of the device.
constexpr base::Nanoseconds kFirstPause = std::chrono::microseconds(20);
constexpr base::Nanoseconds kLongestPause = std::chrono::milliseconds(1);

// How long an engine waits for the coordinator's good-bye once nothing is in flight.
constexpr base::Nanoseconds kFarewell = std::chrono::seconds(5);

}  // namespace

Engine::~Engine() {
  if (process_.is_mine()) {
    if (open_) close().ignore();
    // The device rings the runner, which is destroyed before the agent, so the device closes now.
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
  // After a failure the device may have been released, so it is not asked any more.
  if (device_ != nullptr && agent_.failed()) return agent_.failure();
  Status placed = check_places(*tensor, device_.get(), no_device_);
  if (placed.ok() && on_device(tensor->signature)) placed = mark_ready(*tensor, *device_);
  // The device has failed, and that fails the job.
  if (placed.code() == Code::kTransport) agent_.fail(placed, rank_);
  // Where the job had failed before, its error is the cause, not what the device returned then.
  if (!placed.ok()) return agent_.failed() ? agent_.failure() : placed;
  tensor->signature.on_board =
      may_reduce_in_place(*tensor, job_->board().arena(local_rank_), small_bytes_);
  tensor->submitted = clock_->now();
  tensor->work = std::make_shared<Work>();
  tensor->work->name = tensor->name;
  tensor->work->of_device = on_device(tensor->signature);
  const Inside inside(submitting_threads_);
  const auto ticket = table_.insert(tensor);
  RONDE_RETURN_IF_ERROR(ticket.status());
  if (will_wait) runner_.will_wait();
  const Status announced = agent_.announce(*tensor, *ticket, !will_wait);
  // Without the announcement the other ranks would wait for this tensor until they stall.
  if (!announced.ok()) agent_.fail(announced, rank_);
  return tensor->work;
}

Result<std::unique_ptr<BoardBuffer>> Engine::allocate(base::Bytes bytes) {
  RONDE_RETURN_IF_ERROR(usable());
  RONDE_RETURN_IF_ERROR(agent_.failure());
  return BoardBuffer::allocate(memory_, bytes);
}

Result<bool> Engine::wait_until(Work& work, base::Instant deadline) {
  if (const Status may = may_drive(); !may.ok()) {
    if (work.completion.done()) return true;
    return may;
  }
  const Inside inside(waiting_threads_);
  // Even if the work is done: a submit that promised to wait has silenced the bell, and the runner
  // makes up for it.
  return runner_.wait(work.completion, deadline);
}

base::Instant Engine::verdict_deadline() const {
  return clock_->after(config_.stall_failure + kVerdictMargin);
}

Status Engine::wait(Work& work, base::Instant deadline) {
  auto done = wait_until(work, deadline);
  RONDE_RETURN_IF_ERROR(done.status());
  if (*done) return work.status;
  // The stall checks should have ended it. The caller's memory must be free when this returns.
  Status late = Status::error(Code::kDeadline,
                              "'" + work.name + "' did not end before RONDE_STALL_FAILURE_SECONDS");
  agent_.fail(late, -1);
  runner_.notify(true);
  done = wait_until(work, clock_->after(kFarewell));
  RONDE_RETURN_IF_ERROR(done.status());
  return *done ? work.status : late;
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

Status Engine::let_stream_wait(Work& work, void* stream) {
  RONDE_RETURN_IF_ERROR(may_drive());
  const Inside inside(waiting_threads_);  // also between two looks
  Status can_wait = check_waiting(work, stream);
  if (!can_wait.ok()) {
    // The device is at its end, and with it the job.
    if (can_wait.code() == Code::kTransport) agent_.fail(can_wait, rank_);
    // The work's submit may have promised that this thread drives next.
    static_cast<void>(runner_.wait(work.completion, clock_->now()));
    return can_wait;
  }
  const base::Instant deadline = verdict_deadline();
  const bool issued = runner_.wait(work.issued, deadline);
  // It is late, or there is nothing on the device to wait for.
  if (!issued || work.on_device == nullptr) return wait(work, deadline);
  RONDE_RETURN_IF_ERROR(put_into_stream(work, stream, deadline));
  // Nobody but the caller would look whether the job fails meanwhile.
  return caller_driven_.empty() ? Status() : wait(work, deadline);
}

// Asks the device again and again to have the stream wait, until it can or the work is over.
Status Engine::put_into_stream(Work& work, void* stream, base::Instant deadline) {
  for (base::Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    // What is over needs no stream that waits for it.
    if (work.completion.done()) return work.status;
    const auto waits = work.on_device->wait_on(stream);
    if (waits.ok() && *waits) return {};
    if (!waits.ok()) {
      if (waits.status().code() != Code::kTransport) {
        return Status::error(waits.status().code(),
                             "'" + work.name + "': " + waits.status().message());
      }
      // The device is at its end, and with it the job.
      agent_.fail(waits.status(), rank_);
      return wait(work, deadline);
    }
    // The device waits for other ranks, or for the agent, which this thread drives meanwhile.
    const base::Instant again = std::min(deadline, clock_->after(pause));
    if (!runner_.wait(work.completion, again) && again == deadline) return wait(work, deadline);
  }
}

Status Engine::close() {
  RONDE_RETURN_IF_ERROR(may_drive());
  if (!std::exchange(open_, false)) return Status::error(Code::kClosed, "the engine is closed");
  table_.shut(Status::error(Code::kClosed, "this engine has been closed"));
  // Every tensor in the table must be announced before the ClosingAnnouncement, because the
  // coordinator takes none from this rank after it.
  await_none(submitting_threads_);
  Status left = leave();
  // Every work is done, so threads that waited for one are about to return.
  await_none(waiting_threads_);
  runner_.stop();
  agent_.close();
  peers_.clear();
  if (agent_.failed()) return left;  // the transport was abandoned when the job failed
  Status closed = job_->close();
  return left.ok() ? closed : left;
}

// Waits until this many threads are 0, or for kFarewell.
void Engine::await_none(const std::atomic<std::int32_t>& threads) const {
  const base::Instant deadline = clock_->after(kFarewell);
  while (threads.load(std::memory_order_acquire) > 0 && clock_->now() < deadline) {
    std::this_thread::sleep_for(kLeavePoll);
  }
}

// Announces to the coordinator that this rank submits nothing more, and, once nothing is in flight
// here or the deadline has passed, that it waits for nothing either.
Status Engine::leave() {
  agent_.want_drained();
  agent_.announce(ClosingAnnouncement{false}, true).ignore();
  runner_.notify(false);
  const bool drained = runner_.wait(agent_.drained(), clock_->after(config_.shutdown_timeout));
  agent_.announce(ClosingAnnouncement{true}, true).ignore();
  runner_.notify(false);
  const base::Nanoseconds patience = std::min(kFarewell, config_.shutdown_timeout);
  const bool departed = runner_.wait(agent_.departed(), clock_->after(patience));
  const base::Instant deadline = clock_->after(patience);
  while (!agent_.control_drained() && clock_->now() < deadline && !agent_.failed()) {
    Completion nothing;  // to drive the agent for a moment
    [[maybe_unused]] const bool never = runner_.wait(nothing, clock_->after(kLeavePoll));
  }
  RONDE_RETURN_IF_ERROR(fail_what_is_left(departed));
  Status failure = agent_.failure();
  if (!failure.ok()) return failure;
  const auto [first, count] = agent_.failed_works();
  if (count == 0) return {};
  const std::string why = drained ? "" : " (RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)";
  return Status::error(first.code(), std::to_string(count) +
                                         " operations failed while the engine closed" + why +
                                         "; the first: " + first.message());
}

// Works must finish even if the coordinator does not answer or a batch does not move, because the
// caller may free their memory after close(). So the job fails, and with it the peers in that
// batch.
Status Engine::fail_what_is_left(bool departed) {
  if ((departed && table_.empty()) || agent_.failed()) return {};
  const std::string subject = "rank " + std::to_string(rank_) + " closes its engine, but ";
  if (departed) {
    agent_.fail(
        Status::error(Code::kDeadline,
                      subject + "a batch did not end (RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)"),
        rank_);
  } else {
    agent_.fail(
        Status::error(Code::kDeadline, subject + "rank 0, the coordinator, does not answer"), 0);
  }
  runner_.notify(true);
  if (runner_.wait(departed ? agent_.drained() : agent_.departed(), clock_->after(kFarewell))) {
    return {};
  }
  return Status::error(Code::kDeadline, "the engine did not stop in time");
}

Statistics Engine::statistics() const {
  Statistics result = agent_.statistics();
  result.background_wakes = runner_.counters().background_wakeups;
  return result;
}

}  // namespace ronde::runtime
