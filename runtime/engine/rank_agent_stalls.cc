// SPDX-License-Identifier: Apache-2.0
// The stall checks of a rank's agent: what is late is reported, and fails the job in the end.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/rank_agent.h"
#include "runtime/negotiate/relay.h"
#include "runtime/negotiate/stopped.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::kNever;
using base::Status;

namespace {

// How long the coordinator may take to fail a job that a rank has reported as stalled for good.
// With several hosts it may first have to find out which of them stands still.
constexpr base::Nanoseconds kVerdictGrace = std::chrono::seconds(1);
constexpr base::Nanoseconds kVerdictGraceOfHosts = kVerdictGrace + 2 * kRollCallGrace;

// How long a leader whose neighbours all answer waits for leaders that found a silent one.
constexpr base::Nanoseconds kInquiryOfOthers = 2 * kRollCallGrace;

}  // namespace

void RankAgent::check_stalls() {
  if (clock_.about_now() + base::Clock::kCoarse < next_stall_check_) return;
  const Instant now = clock_.now();
  if (now < next_stall_check_) return;
  if (now > config_.stall_warning) {
    for (const LocalTensorPtr& tensor : table_.overdue(now - config_.stall_warning, 0)) {
      on_overdue(tensor, false);
    }
  }
  if (now > config_.stall_failure) {
    for (const LocalTensorPtr& tensor : table_.overdue(now - config_.stall_failure, 1)) {
      on_overdue(tensor, true);
    }
  }
  if (now >= give_up_at_) give_up();
  if (now >= inquiry_ends_at_) end_inquiry();
  // A tensor that is submitted from now on cannot be late before that.
  next_stall_check_ = std::min(clock_.after(config_.stall_warning), next_stall());
}

// When the first tensor in flight will be late, or the coordinator's verdict about one that is.
Instant RankAgent::next_stall() {
  Instant next = std::min(give_up_at_, inquiry_ends_at_);
  const Instant oldest_unreported = table_.oldest(0);
  if (oldest_unreported != kNever) next = std::min(next, oldest_unreported + config_.stall_warning);
  const Instant oldest = table_.oldest(1);
  if (oldest != kNever) next = std::min(next, oldest + config_.stall_failure);
  return next;
}

// Called when the coordinator has not failed the job in time. A tensor that went into a batch
// meanwhile was late but moves, so it gets the whole deadline once more.
void RankAgent::give_up() {
  give_up_at_ = kNever;
  std::erase_if(stalled_, [](const LocalTensorPtr& tensor) { return tensor->ended; });
  if (stalled_.empty()) return;
  const LocalTensor& first = *stalled_.front();
  if (first.in_batch && !batch_overdue_) {
    batch_overdue_ = true;
    give_up_at_ = clock_.after(config_.stall_failure);
    return;
  }
  std::string text = stall_text(first);
  std::int32_t culprit = stopped_rank();
  if (!first.in_batch && (culprit < 0 || culprit == kCoordinator)) {
    culprit = kCoordinator;
    text += ", and rank 0, the coordinator, does not answer";
  }
  fail(Status::error(Code::kDeadline, text), culprit);
}

void RankAgent::on_overdue(const LocalTensorPtr& tensor, bool failed) {
  if (tensor->in_batch) {
    // Every rank has submitted it, so some rank does not move its data.
    if (failed) {
      inquire(tensor);
    } else {
      warn(*tensor);
    }
    return;
  }
  const base::Nanoseconds waited = clock_.now() - tensor->submitted;
  // The coordinator warns, and at the deadline fails the job; if it does not, give_up() does.
  announce(StalledAnnouncement{tensor->name, waited.count(), failed}, true).ignore();
  if (!failed) {
    // The announcement passes through the leader, which may itself be stopped.
    if (is_stopped(board_.presence(kLeader))) warn(*tensor);
    return;
  }
  stalled_.push_back(tensor);
  if (give_up_at_ != kNever) return;
  batch_overdue_ = false;
  give_up_at_ = clock_.after(job_.shape().hosts() > 1 ? kVerdictGraceOfHosts : kVerdictGrace);
}

// Logs one line for all tensors that are late until the next batch arrives.
void RankAgent::warn(const LocalTensor& tensor) {
  const std::uint64_t received = received_batches_.load(std::memory_order_relaxed);
  if (warned_batch_ == received) return;
  warned_batch_ = received;
  log_.warning(stall_text(tensor));
}

// Called when the batch of this tensor has not moved for too long. A stopped rank is found by the
// ranks of its host, a stopped leader by its neighbours too. All other ranks wait, so that the
// failure names the cause.
void RankAgent::inquire(const LocalTensorPtr& tensor) {
  if (job_.shape().hosts() == 1 || stopped_rank() >= 0) return fail_overdue(*tensor);
  inquiry_.push_back(tensor);
  if (inquiry_ends_at_ != kNever) return;
  roll_called_ = links_ != nullptr;
  if (roll_called_) links_->call_roll().ignore();
  inquiry_ends_at_ = clock_.after(roll_called_ ? kRollCallGrace : kInquiryOfOthers);
}

void RankAgent::end_inquiry() {
  inquiry_ends_at_ = kNever;
  std::erase_if(inquiry_, [](const LocalTensorPtr& each) { return each->ended; });
  if (inquiry_.empty()) return;
  const LocalTensorPtr tensor = inquiry_.front();
  if (!roll_called_) return fail_overdue(*tensor);
  const auto silent = links_->silent();
  if (silent.empty()) {
    // No neighbour of this leader stands still, so another leader must find the one that does.
    roll_called_ = false;
    inquiry_ends_at_ = clock_.after(kInquiryOfOthers - kRollCallGrace);
    return;
  }
  const Status why = silent_neighbour(job_.shape(), silent.front(), stall_text(*tensor));
  fail(why, *why.rank());
}

void RankAgent::fail_overdue(const LocalTensor& tensor) {
  fail(Status::error(Code::kDeadline,
                     stall_text(tensor) + ". This is the deadline of RONDE_STALL_FAILURE_SECONDS"),
       stopped_rank());
}

// "'x' has waited for 30 s in a batch; ranks 1-3 were last in batch 7: ...; rank 0 (pid 42) is
// stopped"
std::string RankAgent::stall_text(const LocalTensor& tensor) const {
  std::string text = "'" + tensor.name + "' has waited for " +
                     seconds_text(clock_.now() - tensor.submitted) +
                     (tensor.in_batch ? " in a batch" : "");
  std::map<std::string, std::vector<std::int32_t>> ranks_by_activity;
  std::string stopped;
  for (std::int32_t position = 0; position < board_.ranks(); ++position) {
    const collectives::Presence presence = board_.presence(position);
    const std::int32_t rank = job_.rank_at(position);
    ranks_by_activity[presence.activity.empty() ? "idle" : presence.activity].push_back(rank);
    stopped += stopped_text(rank, presence);
  }
  for (const auto& [activity, ranks] : ranks_by_activity) {
    text +=
        "; " + ranks_phrase(ranks) + (ranks.size() == 1 ? " was last " : " were last ") + activity;
  }
  return text + stopped;
}

std::int32_t RankAgent::stopped_rank() const {
  for (std::int32_t position = 0; position < board_.ranks(); ++position) {
    if (is_stopped(board_.presence(position))) return job_.rank_at(position);
  }
  return -1;
}

}  // namespace ronde::runtime
