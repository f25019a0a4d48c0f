// SPDX-License-Identifier: Apache-2.0
// What is said of messages that do not fit, that nobody will send or receive, or that are late.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/messages/messages.h"
#include "runtime/negotiate/stopped.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::MutexLock;
using base::Status;

namespace {

// How soon to look whether other hosts have answered; an answer is looked at at once.
constexpr base::Nanoseconds kLookAgain = std::chrono::milliseconds(100);

}  // namespace

// "the message with tag 3 from rank 0 to rank 1 (4 of f32, at trainer.cc:12)".
std::string Messages::text_of(const Operation& operation) const {
  const MessageRequest& request = operation.request;
  const std::int32_t other = operation.peer < 0 ? request.rank : operation.peer;
  return message_text(request.tag, operation.sends ? context_.rank : other,
                      operation.sends ? other : context_.rank) +
         " (" + elements_text(request.dtype, request.count) +
         (operation.place.empty() ? "" : ", at " + operation.place) + ")";
}

Status Messages::mismatch(const Operation& receive, std::int32_t from, const Record& record) const {
  const MessageRequest& wanted = receive.request;
  return Status::error(
      Code::kMismatch,
      message_text(record.tag, from, context_.rank) + " does not fit: rank " +
          std::to_string(from) + " sends " + elements_text(record.dtype, record.count) + ", rank " +
          std::to_string(context_.rank) + " receives " + elements_text(wanted.dtype, wanted.count) +
          (receive.place.empty() ? "" : " (at " + receive.place + ")"));
}

Status Messages::not_received(std::int32_t from, const Record& record) const {
  return Status::error(Code::kClosed, message_text(record.tag, from, context_.rank) + " (" +
                                          elements_text(record.dtype, record.count) + "): rank " +
                                          std::to_string(context_.rank) +
                                          " has closed its engine without receiving it");
}

std::string Messages::oldest_text() const {
  const MutexLock lock(mutex_);
  return in_flight_.empty() ? "" : text_of(*in_flight_.begin()->second);
}

Instant Messages::oldest() const {
  if (!in_use()) return base::kNever;
  const MutexLock lock(mutex_);
  return in_flight_.empty() ? base::kNever : in_flight_.begin()->second->since;
}

std::vector<std::string> Messages::texts() const {
  const MutexLock lock(mutex_);
  std::vector<std::string> texts;
  texts.reserve(in_flight_.size());
  for (const auto& [id, each] : in_flight_) texts.push_back(text_of(*each));
  return texts;
}

std::string Messages::text_of_work(const Work& work) const {
  const MutexLock lock(mutex_);
  for (const auto& [id, each] : in_flight_) {
    if (each->work.get() == &work) return text_of(*each);
  }
  return "";
}

// ---- ranks that have closed their engines ----

// Whether nothing more comes from that rank; what this rank sends to itself counts, too.
bool Messages::has_ended(std::int32_t other) const {
  if (other == context_.rank) return shut_;
  if (peers_[base::narrow<std::size_t>(other)].ended) return true;
  if (is_far(other)) return false;
  // Its first record would be in a channel that is there before it says that it closes.
  const std::int32_t position = position_of(other);
  const bool closes =
      context_.board.message_words(position).closing.load(std::memory_order_seq_cst) != 0;
  return closes && context_.board.message_place(position, me_).load(std::memory_order_seq_cst) == 0;
}

// An error where this can never be finished, since the other rank has closed its engine.
Status Messages::hopeless(const Operation& operation) const {
  // Ranks close because the job has failed, which is what everybody hears.
  if (context_.board.failed()) return {};
  const auto closed = [&](std::int32_t other, const std::string& how) {
    return Status::error(Code::kClosed, text_of(operation) + ": " + base::ranks_phrase({other}) +
                                            " has closed its engine " + how)
        .with_rank(other);
  };
  if (operation.sends || operation.state != State::kWaits) {
    const bool gone = peers_[base::narrow<std::size_t>(operation.peer)].gone;
    const bool back = operation.state == State::kCopies;
    if (!gone && !back) return {};
    return closed(operation.peer, operation.sends ? "without receiving it" : "meanwhile");
  }
  if (operation.peer >= 0) {
    return has_ended(operation.peer) ? closed(operation.peer, "without sending it") : Status();
  }
  for (std::int32_t other = 0; other < context_.shape.ranks(); ++other) {
    if (!has_ended(other)) return {};
  }
  return Status::error(Code::kClosed, text_of(operation) + ": all ranks have closed their engines");
}

bool Messages::end_if_hopeless(const OperationPtr& operation, Finished& finished) {
  if (operation->state == State::kCopies) return false;  // its copy finds out
  Status why = hopeless(*operation);
  if (why.ok()) return false;
  if (!operation->sends) matching_.remove(operation->request.tag, operation);
  if (operation->sends) {
    auto& streaming = peers_[base::narrow<std::size_t>(operation->peer)].streaming;
    std::erase(streaming, operation);
  }
  const std::size_t chunked =
      std::erase_if(chunked_, [&](const auto& each) { return each.second == operation; });
  if (chunked > 0 && is_far(operation->peer)) --granted_;
  std::erase(ungranted_, operation);
  finish(operation, std::move(why), finished);
  return true;
}

void Messages::end_hopeless(Finished& finished) {
  std::vector<OperationPtr> all;
  all.reserve(in_flight_.size());
  for (const auto& [id, each] : in_flight_) all.push_back(each);
  for (const OperationPtr& each : all) end_if_hopeless(each, finished);
}

// ---- late messages ----

// "the message with tag 3 from rank 0 to rank 1 (4 of f32) has waited for 30 s: ..."
std::string Messages::late_text(const Operation& operation, Instant now,
                                std::int32_t* culprit) const {
  std::string text = text_of(operation) + " has waited for " +
                     base::seconds_text(now - operation.since) + " on rank " +
                     std::to_string(context_.rank) + ": ";
  if (operation.peer < 0) {
    text += "no rank has sent it";
    std::vector<std::int32_t> ended;
    for (std::int32_t other = 0; other < context_.shape.ranks(); ++other) {
      if (has_ended(other)) ended.push_back(other);
    }
    if (!ended.empty()) text += ", and " + base::ranks_phrase(ended) + " closed before that";
  } else if (operation.state == State::kWaits) {
    text += "rank " + std::to_string(operation.peer) +
            (operation.sends ? " has not received it" : " has not sent it");
  } else {
    text += "it is being copied";
  }
  // The other rank may itself wait for one that is stopped.
  return text + stopped_here(culprit, operation.peer) + far_text(operation, culprit);
}

// Who is stopped on this host; the first of them, or the preferred one.
std::string Messages::stopped_here(std::int32_t* first, std::int32_t preferred) const {
  std::string text;
  for (std::int32_t position = 0; position < context_.board.ranks(); ++position) {
    const std::int32_t rank = context_.rank_at(position);
    const std::string stopped = stopped_text(rank, context_.board.presence(position));
    if (!stopped.empty() && (*first < 0 || rank == preferred)) *first = rank;
    text += stopped;
  }
  return text;
}

Instant Messages::fails_at(const Operation& operation) const {
  const base::Nanoseconds own = operation.request.deadline;
  const base::Nanoseconds patience =
      own > base::Nanoseconds(0) ? own : context_.config.stall_failure;
  return patience >= base::kNever - operation.since ? base::kNever : operation.since + patience;
}

void Messages::check_late() {
  if (context_.clock.about_now() + base::Clock::kCoarse <
      next_look_.load(std::memory_order_relaxed)) {
    return;
  }
  const Instant now = context_.clock.now();
  std::vector<std::string> warnings;
  Status failure;
  std::int32_t culprit = -1;
  {
    const MutexLock lock(mutex_);
    Instant next = departures_.empty() ? base::kNever : departures_.front().counts_at;
    for (const auto& [id, each] : in_flight_) {
      const Instant fails = fails_at(*each);
      const bool own = each->request.deadline > base::Nanoseconds(0);
      // No other rank has this deadline, so nobody who knows more is waited for.
      if (failure.ok() && now >= fails && has_asked(*each, fails, !own)) {
        failure = Status::error(Code::kDeadline,
                                late_text(*each, now, &culprit) + ". This is the deadline of " +
                                    (own ? "the message" : "RONDE_STALL_FAILURE_SECONDS"));
      }
      if (now >= each->warn_at && has_asked(*each, each->warn_at, false)) {
        std::int32_t stopped = -1;
        warnings.push_back(late_text(*each, now, &stopped));
        each->warn_at = now + context_.config.stall_warning;
      }
      const Instant due = std::min(each->warn_at, fails);
      next = std::min(next, due > now ? due : now + kLookAgain);
    }
    next_look_.store(next, std::memory_order_relaxed);
  }
  constexpr std::size_t kMostWarnings = 8;
  const std::size_t shown = std::min(warnings.size(), kMostWarnings);
  for (std::size_t i = 0; i < shown; ++i) context_.log.warning(warnings[i]);
  if (shown < warnings.size()) {
    context_.log.warning(std::to_string(warnings.size() - shown) + " more messages are late");
  }
  if (!failure.ok()) hooks_.fail(failure, culprit);
}

}  // namespace ronde::runtime
