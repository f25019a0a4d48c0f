// SPDX-License-Identifier: Apache-2.0
// An open engine: submit, wait, close. engine_start.cc opens it.
#include "runtime/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/engine/engine_patience.h"
#include "runtime/tensors/device_check.h"
#include "runtime/tensors/finite_check.h"
#include "runtime/tensors/submission.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;

namespace {

// The pause between two questions whether a stream can wait for a work of the device.
constexpr base::Nanoseconds kFirstPause = std::chrono::microseconds(20);
constexpr base::Nanoseconds kLongestPause = std::chrono::milliseconds(1);

static_assert(WaitingHabit::kLongestDelay == AgentRunner::kMostOwed);

}  // namespace

Engine::~Engine() {
  if (process_.is_mine()) {
    if (open_) close().ignore();
    // The device rings the runner, which is destroyed before the agent, so the device closes now.
    agent_.execution().close_device();
  } else {
    quick_.forget();
    if (device_ != nullptr && within_ == nullptr) device_->forget();
  }
}

Status Engine::usable() const {
  if (process_.is_mine()) return {};
  return Status::error(
      Code::kUnsupported,
      "this engine was opened by the parent process: a forked child cannot use it");
}

bool Engine::is_driver() const {
  // After a failure MPI is not called any more, so any thread may drive what is left to do.
  return caller_driven_.empty() || std::this_thread::get_id() == opener_ || job_->board().failed();
}

Status Engine::may_drive() const {
  RONDE_RETURN_IF_ERROR(usable());
  if (is_driver()) return {};
  return Status::error(Code::kUnsupported,
                       caller_driven_ +
                           ", so only the thread that opened the engine may wait or close; start "
                           "MPI with MPI_THREAD_SERIALIZED");
}

Status Engine::run(Submission submission) {
  if (quick_.any() && line_usable().ok()) {
    const Inside inside(waiting_threads_);
    agent_.threads().submitted();
    const bool checks = checks_finite_ || config_.check == "memory";
    const bool may_go = !checks && !agent_.timeline().on();
    if (auto done = quick_.call(submission, may_go)) return *std::move(done);
  }
  submission.will_wait = true;
  RONDE_ASSIGN_OR_RETURN(const WorkPtr work, submit(std::move(submission)));
  return wait(*work);
}

Result<Engine::WorkPtr> Engine::submit(Submission submission) {
  RONDE_RETURN_IF_ERROR(usable());
  if (quick_.any()) RONDE_RETURN_IF_ERROR(quick_.pass(submission));
  auto work = try_submit(std::move(submission));
  // The job's failure says what it is about itself.
  if (work.ok() || within_ == nullptr || agent_.failure().failed()) return work;
  return agent_.context().told(work.status());
}

Result<Engine::WorkPtr> Engine::try_submit(Submission&& submission) {
  const bool will_wait = submission.will_wait;
  RONDE_ASSIGN_OR_RETURN(const LocalTensorPtr tensor,
                         check_submission(std::move(submission), rank_, size_));
  // After a failure the device may have been released, so it is not asked any more.
  if (device_ != nullptr && agent_.failure().failed()) return agent_.failure().why();
  Status placed = check_places(*tensor, device_.get(), no_device_);
  if (placed.ok() && tensor->signature.weighted && on_device(tensor->signature) &&
      agent_.execution().on_devices()) {
    return Status::error(Code::kUnsupported,
                         "'" + tensor->name +
                             "': the devices of this job average among themselves, without "
                             "weights: average in host memory, or scale and sum");
  }
  if (placed.ok() && on_device(tensor->signature)) placed = mark_ready(*tensor, *device_);
  // The device has failed, and that fails the job.
  if (placed.code() == Code::kTransport) agent_.failure().fail(placed, rank_);
  // Where the job had failed before, its error is the cause, not what the device returned then.
  if (!placed.ok()) return agent_.failure().failed() ? agent_.failure().why() : placed;
  tensor->signature.on_board =
      may_be_used_in_place(*tensor, job_->board().arena(local_rank_), small_bytes_);
  if (checks_finite_) tensor->not_finite = not_finite_in(*tensor);
  tensor->submitted = clock_->now();
  tensor->waited = waits().waited_since(agent_.execution().last_end());
  // The agent takes the tensor's pointer away when it ends the tensor, which may be at any moment
  // once it is in the table.
  WorkPtr work = std::make_shared<Work>();
  work->name = tensor->name;
  work->of_device = on_device(tensor->signature);
  work->deadline = tensor->deadline;
  tensor->work = work;
  const Inside inside(submitting_threads_);
  agent_.threads().submitted();
  std::vector<std::byte> request;
  const auto ticket =
      table_.insert(tensor, [&] { request = agent_.member().make_request(*tensor); });
  if (!ticket.ok()) return agent_.member().with_steps(ticket.status(), *tensor);
  // The name may have come to a line since submit() has asked.
  if (quick_.any()) quick_.pass(*tensor).ignore();
  const auto announce = [&](bool wake) {
    const Status announced = agent_.member().announce(*tensor, *ticket, std::move(request), wake);
    // Without the announcement the other ranks would wait for this tensor until they stall.
    if (!announced.ok()) agent_.failure().fail(announced, rank_);
  };
  if (will_wait) {
    runner_.will_wait();
    announce(false);
  } else {
    announce_and_learn(*work, tensor->submitted, ticket->habit, announce);
  }
  // Whoever sleeps for the agent does not know of this deadline.
  if (work->deadline > base::Nanoseconds(0)) runner_.notify(true);
  return work;
}

Result<Engine::WorkPtr> Engine::join(bool will_wait) {
  RONDE_RETURN_IF_ERROR(usable());
  Submission submission;
  submission.name = "join";
  submission.joins = true;
  submission.views.clear();
  const auto tensor = std::make_shared<LocalTensor>(std::move(submission));
  WorkPtr work = std::make_shared<Work>();
  work->name = tensor->name;
  work->joins = true;
  tensor->submitted = clock_->now();
  tensor->work = work;
  const auto ticket = table_.insert(tensor);
  if (!ticket.ok()) return ticket.status();
  // What other threads have submitted before is announced before, and nothing after.
  await_none(submitting_threads_);
  agent_.line_waits().join(local_rank_);
  quick_.go_away();
  job_->board().ring_all();
  if (will_wait) runner_.will_wait();
  const Status announced = agent_.member().announce(JoinAnnouncement{}, !will_wait);
  if (!announced.ok()) agent_.failure().fail(announced, rank_);
  if (!will_wait) runner_.pay();
  return work;
}

// Announces without a ring where the submitter has waited at once so far.
template <typename Announce>
void Engine::announce_and_learn(Work& work, base::Instant submitted, WaitingHabit* habit,
                                const Announce& announce) {
  const bool learns = habit != nullptr && !work.of_device && caller_driven_.empty();
  if (learns && habit->waits_at_once()) {
    runner_.defer();
    announce(false);
    runner_.owe(submitted);
    work.submitted = submitted;
  } else {
    announce(true);
    runner_.pay();
    // The background thread may have taken the core just now, for which the submitter can do
    // nothing: it does not take long to wait then.
    if (learns) work.submitted = clock_->now();
  }
  if (!learns) return;
  work.balance = habit->submitted();
  work.habit.store(habit, std::memory_order_relaxed);
}

// The submitter waits now, or asks whether it has to.
void Engine::learn(Work& work, bool waits) {
  WaitingHabit* const habit = work.habit.load(std::memory_order_relaxed);
  if (habit == nullptr) return;
  work.habit.store(nullptr, std::memory_order_relaxed);
  const base::Nanoseconds gap = clock_->now() - work.submitted;
  habit->waited(work.balance, waits ? gap : WaitingHabit::kLongestDelay);
  // A caller that only polls does not drive the agent: wake the background thread.
  if (!waits) runner_.pay();
}

Result<std::unique_ptr<BoardBuffer>> Engine::allocate(base::Bytes bytes) {
  RONDE_RETURN_IF_ERROR(usable());
  RONDE_RETURN_IF_ERROR(agent_.failure().why());
  return BoardBuffer::allocate(memory_, bytes);
}

Result<std::unique_ptr<BoardBuffer>> Engine::allocate_anywhere(base::Bytes bytes) {
  auto on_board = allocate(bytes);
  if (on_board.ok()) return on_board;
  if (on_board.status().code() == Code::kOutOfMemory && !told_of_plain_memory_.exchange(true)) {
    log_.info("tensors lie in ordinary memory from here on, and are copied: " +
              on_board.status().message());
  }
  return BoardBuffer::allocate_plain(bytes);
}

Result<bool> Engine::wait_until(Work& work, base::Instant deadline) {
  if (const Status may = may_drive(); !may.ok()) {
    if (work.completion.done()) return true;
    return may;
  }
  const Inside inside(waiting_threads_);
  if (work.of_message && attend(work, false)) return true;
  learn(work, true);
  const base::Instant begin = work.completion.done() ? base::kNever : clock_->now();
  // Even if the work is done: a submit that promised to wait has silenced the bell, and the runner
  // makes up for it.
  const bool done = runner_.wait(work.completion, deadline);
  if (begin != base::kNever) waits().has_waited(begin, clock_->now(), &work, done);
  return done;
}

bool Engine::poll(Work& work) {
  if (work.completion.done()) return true;
  if (!process_.is_mine() || !is_driver()) return false;
  const Inside inside(waiting_threads_);
  if (work.of_message && attend(work, false)) return true;
  learn(work, false);
  return runner_.poll(work.completion);
}

Result<bool> Engine::wait_slice(Work& work, base::Instant deadline) {
  if (process_.is_mine()) {
    agent_.threads().waits_until(std::min(deadline, base::kNever - kSliceGap) + kSliceGap);
  }
  auto done = wait_until(work, deadline);
  if (process_.is_mine() && (!done.ok() || *done)) agent_.threads().waits_no_more();
  return done;
}

base::Instant Engine::verdict_deadline(base::Nanoseconds own) const {
  const base::Nanoseconds span = own > base::Nanoseconds(0) ? own : config_.stall_failure;
  return clock_->after(std::min(span, base::kNever - kVerdictMargin) + kVerdictMargin);
}

Status Engine::wait(Work& work, std::optional<base::Instant> deadline) {
  std::optional<Submitters::Waiting> waiting;
  if (process_.is_mine()) waiting.emplace(agent_.threads());
  if (work.of_message && usable().ok() && attend(work, true)) return result(work);
  // Whoever has joined waits for as long as the others go on, whose stall checks run.
  const base::Instant verdict = work.joins ? base::kNever : verdict_deadline(work.deadline);
  auto done = wait_until(work, deadline ? *deadline : verdict);
  RONDE_RETURN_IF_ERROR(done.status());
  if (*done) return result(work);
  // The stall checks should have ended it. The caller's memory must be free when this returns.
  const std::string message = work.of_message ? agent_.messages().text_of_work(work) : "";
  Status late = Status::error(
      Code::kDeadline, (message.empty() ? "'" + work.name + "'" : message) +
                           " did not end before its deadline, or RONDE_STALL_FAILURE_SECONDS");
  agent_.failure().fail(late, -1);
  runner_.notify(true);
  done = wait_until(work, clock_->after(kFarewell));
  RONDE_RETURN_IF_ERROR(done.status());
  return *done ? result(work) : late;
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
  const Submitters::Waiting waiting(agent_.threads());
  Status can_wait = check_waiting(work, stream);
  if (!can_wait.ok()) {
    // The device has failed, and that fails the job.
    if (can_wait.code() == Code::kTransport) agent_.failure().fail(can_wait, rank_);
    // The work's submit may have promised that this thread drives next.
    static_cast<void>(runner_.wait(work.completion, clock_->now()));
    return can_wait;
  }
  const base::Instant deadline = verdict_deadline(work.deadline);
  const bool issued = runner_.wait(work.issued, deadline);
  // It is late, or there is nothing on the device to wait for.
  if (!issued || work.on_device == nullptr) return wait(work, deadline);
  RONDE_RETURN_IF_ERROR(put_into_stream(work, stream, deadline));
  // No thread but the caller's would notice that the job fails meanwhile.
  return caller_driven_.empty() ? Status() : wait(work, deadline);
}

// Asks the device again and again to have the stream wait, until it can or the work is over.
Status Engine::put_into_stream(Work& work, void* stream, base::Instant deadline) {
  for (base::Nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    // What is over needs no stream that waits for it.
    if (work.completion.done()) return result(work);
    // Once the job has failed the device is being given up, and what it says is no answer.
    if (job_->board().failed()) return wait(work, deadline);
    const auto waits = work.on_device->wait_on(stream);
    if (waits.ok() && *waits) return {};
    if (!waits.ok()) {
      if (waits.status().code() != Code::kTransport) {
        return Status::error(waits.status().code(),
                             "'" + work.name + "': " + waits.status().message());
      }
      // The device has failed, and that fails the job.
      agent_.failure().fail(waits.status(), rank_);
      return wait(work, deadline);
    }
    // The device waits for other ranks, or for the agent, which this thread drives meanwhile.
    const base::Instant again = std::min(deadline, clock_->after(pause));
    if (!runner_.wait(work.completion, again) && again == deadline) return wait(work, deadline);
  }
}

Status Engine::line_usable() {
  RONDE_RETURN_IF_ERROR(may_drive());
  const bool open = open_.load(std::memory_order_acquire);
  // The board of a process set that has been closed may be another one's.
  if ((open || within_ == nullptr) && job_->board().failed()) return agent_.failure().why();
  return open ? Status() : Status::error(Code::kClosed, "this engine has been closed");
}

LineHost Engine::line_host() {
  LineHost host{.board = job_->board(),
                .runner = runner_,
                .waits = (within_ == nullptr ? *this : *within_->job).agent_.line_waits(),
                .uses = agent_.line_waits(),
                .threads = agent_.threads(),
                .config = config_,
                .clock = *clock_,
                .log = log_,
                .where = within_ == nullptr ? "" : "process set '" + within_->identity.name + "', ",
                .oversubscribed = job_->oversubscribed(),
                .caller_driven = !caller_driven_.empty(),
                .usable = [this] { return line_usable(); },
                .fail = {},
                .failure = [this] { return await_failure(); }};
  host.fail = [this](const Status& why, std::int32_t position) {
    const std::int32_t rank = position < 0 ? -1 : job_->rank_at(position);
    agent_.failure().fail(why, rank);
    runner_.notify(true);
    Status failed = await_failure();  // which another rank may have reported first
    return failed.ok() ? Status(why).with_rank(rank) : failed;
  };
  return host;
}

Status Engine::told(Status status) {
  if (status.ok() || within_ == nullptr || agent_.failure().failed()) return status;
  return agent_.context().told(status);
}

Statistics Engine::statistics() {
  const Execution::Counts done = agent_.execution().counts();
  return {.batches = done.batches,
          .tensors = done.tensors,
          .payload_bytes = done.payload_bytes,
          .control_bytes = agent_.streams().bytes(),
          .full_requests = agent_.member().full_requests(),
          .planned_requests = agent_.member().planned_requests(),
          .background_wakes = runner_.counters().background_wakeups,
          .in_place_bytes = done.in_place_bytes,
          .execution = done.time};
}

Result<const char*> Engine::describe() {
  RONDE_RETURN_IF_ERROR(usable());
  const base::MutexLock lock(describing_);
  if (description_.empty()) {
    description_ = text_of(job_->rank_table(), job_->shape(), config_.algorithm != "auto");
    if (device_ != nullptr) description_ += "\n" + device_line_;
  }
  return description_.c_str();
}

}  // namespace ronde::runtime
