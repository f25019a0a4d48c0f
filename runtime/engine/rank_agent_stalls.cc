// SPDX-License-Identifier: Apache-2.0
// The stall checks of a rank's agent: what is late is reported, and fails the job in the end.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/engine/rank_agent.h"
#include "runtime/negotiate/relay.h"
#include "runtime/negotiate/stall_notice.h"
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
  log_.catch_up();
  report_late(now);
  if (now > config_.stall_failure) report_expired(now);
  if (now >= own_notice_at_) print_own_notice();
  if (now >= give_up_at_) give_up();
  if (now >= inquiry_ends_at_) end_inquiry();
  // A tensor that is submitted from now on cannot be late before that.
  next_stall_check_ = std::min(clock_.after(config_.stall_warning), next_stall());
}

// When the first tensor in flight will be late, or something is due about one that is.
Instant RankAgent::next_stall() {
  Instant next = std::min({give_up_at_, inquiry_ends_at_, next_report_, own_notice_at_});
  const Instant oldest_unreported = table_.oldest(0);
  if (oldest_unreported != kNever) next = std::min(next, oldest_unreported + config_.stall_warning);
  const Instant oldest = table_.oldest(1);
  if (oldest != kNever) next = std::min(next, oldest + config_.stall_failure);
  return next;
}

// Reports tensors to the coordinator when they become late, and all that still are in every
// interval. What will be late in a moment is reported together with what is.
void RankAgent::report_late(Instant now) {
  std::vector<LocalTensorPtr> fresh;
  const Instant oldest = table_.oldest(0);
  if (oldest != kNever && now - oldest >= config_.stall_warning) {
    fresh = table_.overdue(now - config_.stall_warning + gathering_time(config_), 0);
  }
  const bool due = now >= next_report_;
  if (fresh.empty() && !due) return;
  std::vector<LocalTensorPtr> late = late_tensors();
  const bool begins = due || late.empty();  // an interval
  if (begins) next_report_ = clock_.after(config_.stall_warning);
  late_.insert(late_.end(), fresh.begin(), fresh.end());
  if (!due) late.clear();
  late.insert(late.end(), fresh.begin(), fresh.end());
  if (late.empty()) {
    next_report_ = own_notice_at_ = kNever;
    return;
  }
  announce_late(late, now, false);
  // Normally the coordinator notifies the leaders. A leader that is not notified, and whoever is
  // next where the leader itself is stopped, print what they know.
  if (board_.rank() == kLeader) {
    // The coordinator gathers reports before it notifies anyone.
    const base::Nanoseconds grace = job_.shape().hosts() > 1 ? kVerdictGraceOfHosts : kVerdictGrace;
    if (own_notice_at_ == kNever) {
      own_notice_at_ = next_report_ + gathering_time(config_) + grace;
    }
  } else if (begins && speaks_for_stopped_leader()) {
    print_own_notice();
  }
}

// The tensors that were reported and are late still, oldest first.
std::vector<LocalTensorPtr> RankAgent::late_tensors() {
  std::vector<LocalTensorPtr> late;
  std::erase_if(late_, [&late](const std::weak_ptr<LocalTensor>& each) {
    LocalTensorPtr tensor = each.lock();
    if (tensor == nullptr || tensor->ended) return true;
    late.push_back(std::move(tensor));
    return false;
  });
  return late;
}

// The coordinator warns, and at the deadline fails the job; if it does not, give_up() does.
void RankAgent::announce_late(const std::vector<LocalTensorPtr>& tensors, Instant now,
                              bool failed) {
  StalledAnnouncement waiting{{}, false, failed};
  StalledAnnouncement batched{{}, true, failed};
  for (const LocalTensorPtr& tensor : tensors) {
    (tensor->in_batch ? batched : waiting)
        .tensors.push_back({tensor->name, (now - tensor->submitted).count()});
  }
  if (!waiting.tensors.empty()) announce(waiting, true).ignore();
  if (!batched.tensors.empty()) announce(batched, true).ignore();
}

void RankAgent::report_expired(Instant now) {
  std::vector<LocalTensorPtr> waiting;
  for (const LocalTensorPtr& tensor : table_.overdue(now - config_.stall_failure, 1)) {
    // Every rank has submitted what is in a batch, so some rank does not move its data.
    if (tensor->in_batch) {
      inquire(tensor);
    } else {
      waiting.push_back(tensor);
    }
  }
  if (waiting.empty()) return;
  announce_late(waiting, now, true);
  stalled_.insert(stalled_.end(), waiting.begin(), waiting.end());
  if (give_up_at_ != kNever) return;
  batch_overdue_ = false;
  give_up_at_ = clock_.after(job_.shape().hosts() > 1 ? kVerdictGraceOfHosts : kVerdictGrace);
}

// The coordinator's notice about late tensors is printed once on each host.
void RankAgent::on_notice(const NoticeDecision& notice) {
  own_notice_at_ = kNever;
  if (board_.rank() != kLeader) return;
  log_.warning(notice.in_batch ? notice.text + text_of_host() : notice.text);
}

void RankAgent::print_own_notice() {
  own_notice_at_ = kNever;
  const std::vector<LocalTensorPtr> late = late_tensors();
  if (late.empty()) return;
  const Instant now = clock_.now();
  log_.warning(late_phrase(late.front()->name, late.size(), now - late.front()->submitted,
                           now - late.back()->submitted) +
               (late.front()->in_batch ? " in a batch" : "") + text_of_host());
}

// Whether the leader of this host is stopped, and this rank is the first that is not.
bool RankAgent::speaks_for_stopped_leader() const {
  for (std::int32_t position = 0; position < board_.rank(); ++position) {
    if (!is_stopped(board_.presence(position))) return false;
  }
  return true;
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

// "'x' has waited 30 s in a batch; ranks 1-3 were last in batch 7: ...; rank 0 (pid 42) is stopped"
std::string RankAgent::stall_text(const LocalTensor& tensor) const {
  const base::Nanoseconds waited = clock_.now() - tensor.submitted;
  return late_phrase(tensor.name, 1, waited, waited) + (tensor.in_batch ? " in a batch" : "") +
         text_of_host();
}

// "; ranks 1-3 were last in batch 7: ...; rank 0 (pid 42) is stopped"
std::string RankAgent::text_of_host() const {
  std::string text;
  std::map<std::string, std::vector<std::int32_t>> ranks_by_activity;
  std::string stopped;
  for (std::int32_t position = 0; position < board_.ranks(); ++position) {
    const collectives::Presence presence = board_.presence(position);
    const std::int32_t rank = job_.rank_at(position);
    ranks_by_activity[presence.activity.empty() ? "idle" : presence.activity].push_back(rank);
    stopped += stopped_text(rank, presence);
  }
  for (const auto& [activity, ranks] : ranks_by_activity) {
    text += "; " + base::ranks_phrase(ranks) + (ranks.size() == 1 ? " was last " : " were last ") +
            activity;
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
