// SPDX-License-Identifier: Apache-2.0
// Waiting for lines: pauses, yields, sleep, and what is said about a rank that does not come.
#include "runtime/lines/line_words.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/negotiate/stall_notice.h"
#include "runtime/negotiate/stopped.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;
using collectives::LineEnd;

namespace {

// A line travels from core to core in less than these pauses take, so no clock is read before.
constexpr int kFirstLooks = 64;
// Every so many looks a thread that has no background thread beside it drives the engine.
constexpr int kLooksPerDrive = 64;
constexpr base::Nanoseconds kYielding = std::chrono::milliseconds(1);

}  // namespace

LineWords::LineWords(LineHost host, const collectives::Lines& lines, std::string what, Join join)
    : host_(std::move(host)),
      lines_(lines),
      text_(std::move(what)),
      rank_(host_.board.rank()),
      idle_(host_.config.spin, kYielding, host_.oversubscribed) {
  if (join == Join::kEndsIt) use_.emplace(host_.uses, lines_);
}

bool LineWords::waits_for(std::int32_t rank) const {
  if (rank == rank_ || (what_ == For::kRoot && rank != root_)) return false;
  const Sequence call = what_ == For::kReaders ? call_ - 2 : call_;
  return sequence(rank, Protocol::line_of(call)) != call;
}

bool LineWords::ready() const {
  if (what_ == For::kRoot) return !waits_for(root_);
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (waits_for(rank)) return false;
  }
  return true;
}

bool LineWords::may_go_on() const {
  return ready() || host_.board.failed() || end_of_others().is_one() || !usable().ok();
}

LineEnd LineWords::end_of_others() const {
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (!waits_for(rank)) continue;
    const LineEnd end = LineEnd::of(lines_.ended(rank).load(std::memory_order_seq_cst));
    if (end.is_one()) return end;  // whether or not it has joined afterwards
    if (lines_.joined(rank).load(std::memory_order_seq_cst) != 0) return {.rank = rank};
    // What it has posted before it closed is there.
    const bool closed = host_.board.state(rank) == collectives::PresenceState::kClosed;
    if (closed && waits_for(rank)) return {.rank = rank, .closed = true};
  }
  return {};
}

Status LineWords::ended_by(LineEnd end) const {
  if (end.closed) {
    return Status::error(Code::kClosed, text_ + " cannot complete: rank " +
                                            std::to_string(end.rank) + " has closed its engine")
        .with_rank(end.rank);
  }
  if (end.late) {
    return Status::error(Code::kDeadline,
                         text_ + " has ended: rank " + std::to_string(end.rank) +
                             " has waited until the deadline of its request: prepare it again")
        .with_rank(end.rank);
  }
  return Status::error(Code::kMismatch,
                       text_ + " has ended: rank " + std::to_string(end.rank) +
                           " has joined, and runs nothing until all have: use the ordinary "
                           "operation, which goes on without it, or prepare it again afterwards")
      .with_rank(end.rank);
}

Status LineWords::await(For what, Sequence call, std::int32_t root) {
  begin(what, call, root);
  return ready() ? Status() : await_on(base::kNever).status();
}

Result<bool> LineWords::await_for(Sequence call, base::Nanoseconds patience) {
  begin(For::kAll, call, 0);
  if (ready()) return true;
  return await_on(after(patience));  // nobody who is here in time reads a clock
}

void LineWords::begin(For what, Sequence call, std::int32_t root) {
  what_ = what;
  call_ = call;
  root_ = root;
  looks_ = 0;
  late_ = false;
  began_ = {};
}

Result<bool> LineWords::await_on(base::Instant until) {
  auto here = look_on(until);
  if (!stand_) return here;  // it has never slept
  waiting_.reset();
  if (here.ok() && !*here) return here;  // the caller goes on to wait
  if (until != base::kNever) host_.threads.waits_no_more();
  stand_.reset();
  return here;
}

Result<bool> LineWords::look_on(base::Instant until) {
  if (looks_ == 0) idle_ = Idle(host_.config.spin, kYielding, host_.oversubscribed);
  until_ = until;
  passed_ = false;
  if (Protocol(*this).await([this] { return ready(); })) return true;
  if (passed_) return false;
  if (host_.board.failed()) return host_.failure();
  if (const LineEnd end = end_of_others(); end.is_one()) return end_with(end);
  RONDE_RETURN_IF_ERROR(usable());
  if (!late_) return look_on(until);  // whoever has joined had come before
  return fail_late();
}

// Whoever waits for this rank alone is to hear of it, too.
Status LineWords::end_with(LineEnd end) {
  ended_ = end;
  Protocol(*this).give_up(call_, end.rank == rank_ && what_ == For::kAll);
  return ended_by(end);
}

Status LineWords::fail_late() {
  const std::vector<std::int32_t> late = missing();
  if (end_ != base::kNever) {
    static_cast<void>(end_with({.rank = rank_, .late = true}));
    return Status::error(Code::kDeadline, text_ + " has waited for " + base::ranks_phrase(late) +
                                              stopped(late) + deadline_text(true))
        .with_rank(late.empty() ? -1 : late.front());
  }
  return host_.fail(
      Status::error(Code::kDeadline, text_ + " has waited for " + base::ranks_phrase(late) +
                                         ", which did not run it before "
                                         "RONDE_STALL_FAILURE_SECONDS" +
                                         stopped(late)),
      late.empty() ? -1 : late.front());
}

bool LineWords::watch() {
  ++looks_;
  if (host_.caller_driven && looks_ % kLooksPerDrive == 0) {
    static_cast<void>(host_.runner.poll(completion));
  }
  if (looks_ % kLooksPerDrive == 0 && std::min(until_, end_) != base::kNever) {
    look_at_clock();
    if (passed_ || late_) return true;
  }
  if (looks_ > kFirstLooks) return idle_.again(true);
  cpu_relax();
  return true;
}

void LineWords::look_at_clock() {
  const base::Instant now = host_.clock.now();
  passed_ = now >= until_;
  late_ = now >= end_;
}

void LineWords::sleep() {
  const base::Instant now = host_.clock.now();
  if (began_ == base::Instant{}) {
    began_ = now;
    notice_ = host_.clock.after(host_.config.stall_warning);
  }
  if (now >= notice_) {
    const std::vector<std::int32_t> late = missing();
    host_.log.warning(text_ + " has waited for " + base::seconds_text(now - began_) + " for " +
                      base::ranks_phrase(late) + ": is it run there?" + stopped(late));
    notice_ = host_.clock.after(host_.config.stall_warning);
  }
  const base::Nanoseconds patience = host_.config.stall_failure;
  const base::Instant end = end_ != base::kNever                ? end_
                            : patience >= base::kNever - began_ ? base::kNever
                                                                : began_ + patience;
  late_ = now >= end;
  passed_ = now >= until_;
  if (late_ || passed_) return;
  stand();
  completion.reset();
  // From here on the agent looks for this thread; what came before that it sees itself.
  const LineWaits::Sleep sleep(host_.waits, *this);
  if (may_go_on()) {
    late_ = !usable().ok();
    return;
  }
  static_cast<void>(host_.runner.wait(completion, std::min({notice_, end, until_})));
}

// This thread stands still from now on, as far as the watch of deadlocks knows. Nobody who finds
// the others there, or sees them come soon, gets here.
void LineWords::stand() {
  if (end_ != base::kNever) return;  // it may do something else then
  if (until_ != base::kNever) {
    host_.threads.waits_until(std::min(until_, base::kNever - kSliceGap) + kSliceGap);
  } else if (!waiting_) {
    waiting_.emplace(host_.threads);
  }
  if (!stand_) stand_.emplace(host_.uses, *this, began_);
}

StandingTensor LineWords::standing() const {
  return {text_, host_.where + "call " + std::to_string(call_)};
}

std::vector<std::int32_t> LineWords::missing() const {
  std::vector<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < ranks(); ++rank) {
    if (waits_for(rank)) missing.push_back(rank);
  }
  return missing;
}

std::string LineWords::stopped(const std::vector<std::int32_t>& missing) const {
  std::string text;
  for (const std::int32_t rank : missing) text += stopped_text(rank, host_.board.presence(rank));
  return text;
}

}  // namespace ronde::runtime
