// SPDX-License-Identifier: Apache-2.0
// The end of an engine, and of works that nobody waits for any longer.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/text.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_patience.h"

namespace ronde::runtime {

using base::Code;
using base::Status;

namespace {

// How often threads look for what no bell rings for.
constexpr auto kLeavePoll = std::chrono::microseconds(200);

std::string operations_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " operation" : " operations");
}

}  // namespace

// ---- works that are left behind ----

Status Engine::result(Work& work) {
  if (work.heard != nullptr) work.heard->store(true, std::memory_order_relaxed);
  return work.status;
}

void Engine::settle(Work& work, std::optional<base::Nanoseconds> grace) {
  if (!process_.is_mine()) return;
  const base::Nanoseconds longest = config_.stall_failure + kVerdictMargin;
  const base::Nanoseconds patience = std::min(grace.value_or(config_.unwind_grace), longest);
  if (outlast(work, clock_->after(patience))) return;
  const Status why = Status::error(Code::kDeadline, not_settled(work, patience, !grace));
  const bool asked = give_up(why);
  runner_.notify(true);
  if (outlast(work, clock_->after(kFarewell)) || !asked) return;
  // All have agreed, and a batch that was decided before still moves.
  if (agent_.gives_up() && outlast(work, clock_->after(config_.stall_failure))) return;
  // A rank of the set does not answer, or its batch does not move.
  agent_.failure().fail(why, rank_);
  runner_.notify(true);
  static_cast<void>(outlast(work, clock_->after(kFarewell)));
}

// Fails the job, or a process set alone. True: the ranks of the set have to agree on that first
// (GivenUpDecision).
bool Engine::give_up(const Status& why) {
  if (within_ == nullptr) {
    agent_.failure().fail(why, rank_);
  } else if (!agent_.over_transport()) {
    agent_.failure().fail_alone(why);
  } else {
    const GivenUpAnnouncement given_up{why.code(), why.message(), why.place()};
    agent_.member().announce(given_up, true).ignore();
    return true;
  }
  return false;
}

// Waits until the work is done or the clock has reached the deadline; true when it is done.
bool Engine::outlast(Work& work, base::Instant deadline) {
  const Inside inside(waiting_threads_);
  while (!may_drive().ok()) {
    if (work.completion.done()) return true;
    if (clock_->now() >= deadline) return false;
    std::this_thread::sleep_for(kLeavePoll);
  }
  return runner_.wait(work.completion, deadline);
}

std::string Engine::not_settled(const Work& work, base::Nanoseconds patience, bool unwinding) {
  const std::string message = work.of_message ? agent_.messages().text_of_work(work) : "";
  return (message.empty() ? table_.describe(work.name) : message) + " was " +
         (unwinding ? "left behind by an exception" : "given up") + " on rank " +
         std::to_string(rank_) + " and did not end within " + base::seconds_text(patience) +
         (unwinding
              ? " (RONDE_UNWIND_GRACE_SECONDS): look at the output of rank " + std::to_string(rank_)
              : "");
}

// ---- the end of the engine ----

Status Engine::close() {
  RONDE_RETURN_IF_ERROR(usable());
  if (!open_.exchange(false)) {
    if (closed_at_exit_.load()) return {};
    return Status::error(Code::kClosed, "the engine is closed");
  }
  Status may = may_drive();
  close_sets();
  quick_.go_away();
  table_.shut(agent_.context().told(Status::error(Code::kClosed, "this engine has been closed")));
  agent_.messages().shut();
  // Without a thread that may make the MPI calls of an orderly end, the other ranks would wait for
  // one that never answers. After a failure none are made, so that this thread may drive.
  if (!may.ok()) {
    agent_.failure().fail(
        Status::error(Code::kClosed,
                      "rank " + std::to_string(rank_) +
                          " closed its engine in a thread that may not: " + may.message()),
        rank_);
    runner_.notify(true);
  }
  // Every tensor in the table must be announced before the ClosingAnnouncement, because the
  // coordinator takes none from this rank after it.
  await_none(submitting_threads_);
  Status left = may.ok() ? leave() : await_failure();
  if (may.ok() && !agent_.failure().failed()) {
    const Status passed = pass_on_to_the_end();
    if (left.ok()) left = passed;
  }
  // Every work is done, so threads that waited for one are about to return.
  await_none(waiting_threads_);
  within_ ? end_set() : runner_.stop();
  // What could not be written was logged. A process set's goes on with the job's.
  if (within_ == nullptr) agent_.timeline().stop().ignore();
  agent_.close();
  if (within_) announce_end();
  peers_.clear();
  if (!may.ok()) return may;
  if (agent_.failure().failed()) return left;  // the transport was abandoned when the job failed
  Status closed = job_->close();
  return left.ok() ? closed : left;
}

// No caller is left to return an error to; the failure of a job is in the log already.
void Engine::close_at_exit() {
  if (!process_.is_mine() || !open_.load()) return;
  closed_at_exit_.store(true);
  std::string oldest = table_.describe_oldest();
  for (const auto& set : open_sets()) {
    if (oldest.empty()) oldest = set->table_.describe_oldest();
    if (oldest.empty()) oldest = set->agent_.messages().oldest_text();
  }
  if (oldest.empty()) oldest = agent_.messages().oldest_text();
  if (oldest.empty()) oldest = quick_.text_of_call();
  if (oldest.empty()) oldest = agent_.line_waits().oldest_text();
  if (!oldest.empty()) {
    agent_.failure().fail(
        Status::error(Code::kPeerFailed, "rank " + std::to_string(rank_) +
                                             " ended its process, by exit() or a return "
                                             "from main(), while " +
                                             oldest + " was in flight"),
        rank_);
    runner_.notify(true);
    static_cast<void>(await_failure());
  }
  const Status closed = close();
  if (!closed.ok() && !agent_.failure().failed()) log_.error(closed.message());
}

// Waits until this many threads are 0, or for kFarewell.
void Engine::await_none(const std::atomic<std::int32_t>& threads) const {
  const base::Instant deadline = clock_->after(kFarewell);
  while (threads.load(std::memory_order_acquire) > 0 && clock_->now() < deadline) {
    std::this_thread::sleep_for(kLeavePoll);
  }
}

// Announces to the coordinator that this rank submits nothing more, and, once nothing is in flight
// here or the deadline has passed, that it waits for nothing either. Nothing of it after a failure:
// a coordinator that is just reading could take the departure for the reason.
Status Engine::leave() {
  agent_.works().want_drained();
  if (agent_.failure().failed()) return agent_.failure().why();
  agent_.member().announce(ClosingAnnouncement{false, agent_.member().last_step()}, true).ignore();
  runner_.notify(false);
  const bool drained =
      runner_.wait(agent_.works().drained(), clock_->after(config_.shutdown_timeout));
  if (!drained) give_messages_up();
  agent_.member().announce(ClosingAnnouncement{true, agent_.member().last_step()}, true).ignore();
  runner_.notify(false);
  const std::uint64_t begun = agent_.control().begun();
  const base::Nanoseconds patience = std::min(kFarewell, config_.shutdown_timeout);
  const bool departed = runner_.wait(agent_.departed(), clock_->after(patience));
  const base::Instant deadline = clock_->after(patience);
  // Messages to other hosts that have ended here may still be on their way to the leader, who
  // passes its own announcement on.
  const auto passes = [this, begun, far = job_->shape().hosts() > 1] {
    return far && (!agent_.control().has_stepped(begun) || agent_.streams().has_backlog());
  };
  // A rank whose join has ended may still be in a batch of the others.
  while ((passes() || !agent_.control().drained() || table_.stands_in()) &&
         clock_->now() < deadline && !agent_.failure().failed()) {
    Completion nothing;  // to drive the agent for a moment
    [[maybe_unused]] const bool never = runner_.wait(nothing, clock_->after(kLeavePoll));
  }
  RONDE_RETURN_IF_ERROR(fail_what_is_left(departed));
  Status failure = agent_.failure().why();
  if (!failure.ok()) return failure;
  const FailedWorks failed = agent_.works().failed();
  const std::string why = drained ? "" : " (RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)";
  std::string text;
  if (failed.unheard > 0) {
    text = operations_text(failed.unheard) + " failed, and nobody waited for the result";
  }
  if (failed.while_closing > 0) {
    text += (text.empty() ? "" : "; ") + operations_text(failed.while_closing) +
            " failed while the engine closed" + why;
  }
  if (text.empty()) return {};
  return Status::error(failed.first.code(), text + "; the first: " + failed.first.message());
}

// The coordinator knows nothing of messages, so they end here, by name.
void Engine::give_messages_up() {
  Messages& messages = agent_.messages();
  messages.want_given_up();
  const base::Instant deadline = clock_->after(kFarewell);
  while (messages.in_flight() && clock_->now() < deadline && !agent_.failure().failed()) {
    Completion nothing;  // to drive the agent for a moment
    [[maybe_unused]] const bool never = runner_.wait(nothing, clock_->after(kLeavePoll));
  }
}

// The leaders of hosts pass on what the ranks of a set over several hosts tell each other, whether
// they are in it or not, and messages, also when they have left the job. After the deadline sets
// fail the job; whoever may still want to send a message need not.
Status Engine::pass_on_to_the_end() {
  const HostControl& control = agent_.control();
  // Those of a process set go through the leaders of the job.
  const auto may_pass = [&control, of_hosts = within_ == nullptr && job_->shape().hosts() > 1] {
    return of_hosts && control.may_pass_messages();
  };
  if (!agent_.passes_on() && !may_pass()) return {};
  const Inside inside(waiting_threads_);
  const base::Instant deadline = clock_->after(config_.shutdown_timeout);
  while ((agent_.passes_on() || may_pass() || !control.drained()) && clock_->now() < deadline &&
         !agent_.failure().failed()) {
    Completion nothing;  // to drive the agent for a moment
    [[maybe_unused]] const bool never = runner_.wait(nothing, clock_->after(kLeavePoll));
  }
  if (!agent_.passes_on() || agent_.failure().failed()) return {};
  Status late = Status::error(
      Code::kDeadline, "rank " + std::to_string(rank_) +
                           " closes its engine, through which hosts talk to each other, but a "
                           "process set over several hosts is still open on other ranks "
                           "(RONDE_SHUTDOWN_TIMEOUT_SECONDS passed): close it there first");
  agent_.failure().fail(late, rank_);
  runner_.notify(true);
  static_cast<void>(runner_.wait(agent_.works().drained(), clock_->after(kFarewell)));
  return late;
}

// This rank has failed the job. It announces nothing more: the coordinator might read that before
// the failure, and other ranks would get another reason.
Status Engine::await_failure() {
  if (runner_.wait(agent_.departed(), clock_->after(kFarewell))) return agent_.failure().why();
  return Status::error(Code::kDeadline, "the engine did not stop in time");
}

// Works must finish even if the coordinator does not answer or a batch does not move, because the
// caller may free their memory after close(). So the job fails, and with it the peers in that
// batch.
Status Engine::fail_what_is_left(bool departed) {
  if ((departed && table_.empty()) || agent_.failure().failed()) return {};
  const std::string subject = "rank " + std::to_string(rank_) + " closes its engine, but ";
  if (departed) {
    agent_.failure().fail(
        Status::error(Code::kDeadline,
                      subject + "a batch did not end (RONDE_SHUTDOWN_TIMEOUT_SECONDS passed)"),
        rank_);
  } else {
    agent_.failure().fail(
        Status::error(Code::kDeadline, subject + "rank 0, the coordinator, does not answer"), 0);
  }
  runner_.notify(true);
  if (runner_.wait(departed ? agent_.works().drained() : agent_.departed(),
                   clock_->after(kFarewell))) {
    return {};
  }
  return Status::error(Code::kDeadline, "the engine did not stop in time");
}

}  // namespace ronde::runtime
