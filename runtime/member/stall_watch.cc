// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/stall_watch.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
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

void StallWatch::check() {
  const Instant due = std::min(next_check_, member_.table().next_deadline());
  if (context_.clock.about_now() + base::Clock::kCoarse < due) return;
  const Instant now = context_.clock.now();
  if (now < due) return;
  context_.log.catch_up();
  report_late(now);
  report_expired(now);
  if (now >= own_notice_at_) print_own_notice();
  if (now >= giving_up_.at) give_up();
  if (now >= inquiry_.ends_at) end_inquiry();
  // A tensor that is submitted from now on cannot be late before that.
  next_check_ = std::min(context_.clock.after(context_.config.stall_warning), next());
}

// When the first tensor in flight will be late, or something is due about one that is.
Instant StallWatch::next() const {
  Instant next = std::min({giving_up_.at, inquiry_.ends_at, next_report_, own_notice_at_,
                           member_.table().next_deadline()});
  const Instant oldest_unreported = member_.table().oldest(0);
  if (oldest_unreported != kNever)
    next = std::min(next, oldest_unreported + context_.config.stall_warning);
  const Instant oldest = member_.table().oldest(1);
  if (oldest != kNever) next = std::min(next, oldest + context_.config.stall_failure);
  return next;
}

// Reports tensors to the coordinator when they become late, and all that still are in every
// interval. What will be late in a moment is reported together with what is.
void StallWatch::report_late(Instant now) {
  std::vector<LocalTensorPtr> fresh;
  const Instant oldest = member_.table().oldest(0);
  if (oldest != kNever && now - oldest >= context_.config.stall_warning) {
    fresh = member_.table().overdue(
        now - context_.config.stall_warning + gathering_time(context_.config), 0);
  }
  const bool due = now >= next_report_;
  if (fresh.empty() && !due) return;
  std::vector<LocalTensorPtr> late = late_tensors();
  const bool begins = due || late.empty();  // an interval
  if (begins) next_report_ = context_.clock.after(context_.config.stall_warning);
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
  if (context_.leads()) {
    // The coordinator gathers reports before it notifies anyone.
    const base::Nanoseconds grace = one_host() ? kVerdictGrace : kVerdictGraceOfHosts;
    if (own_notice_at_ == kNever) {
      own_notice_at_ = next_report_ + gathering_time(context_.config) + grace;
    }
  } else if (begins && speaks_for_stopped_leader()) {
    print_own_notice();
  }
}

// The tensors that were reported and are late still, oldest first.
std::vector<LocalTensorPtr> StallWatch::late_tensors() {
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
void StallWatch::announce_late(const std::vector<LocalTensorPtr>& tensors, Instant now,
                               bool failed) {
  StalledAnnouncement waiting{{}, false, failed};
  StalledAnnouncement batched{{}, true, failed};
  waiting.own_deadline = failed && tensors.front()->has_deadline();
  for (const LocalTensorPtr& tensor : tensors) {
    (tensor->in_batch ? batched : waiting)
        .tensors.push_back({tensor->name, (now - tensor->submitted).count()});
  }
  if (!waiting.tensors.empty()) member_.announce(waiting, true).ignore();
  if (!batched.tensors.empty()) member_.announce(batched, true).ignore();
}

void StallWatch::report_expired(Instant now) {
  std::vector<LocalTensorPtr> waiting;
  for (const LocalTensorPtr& tensor : expired(now)) {
    // Every rank has submitted what is in a batch, so some rank does not move its data.
    if (tensor->in_batch) {
      inquire(tensor);
    } else {
      waiting.push_back(tensor);
    }
  }
  if (waiting.empty()) return;
  announce_late(waiting, now, true);
  giving_up_.tensors.insert(giving_up_.tensors.end(), waiting.begin(), waiting.end());
  if (giving_up_.at != kNever) return;
  giving_up_.batch_overdue = false;
  giving_up_.at = context_.clock.after(one_host() ? kVerdictGrace : kVerdictGraceOfHosts);
}

// What is past its deadline, its own or else that of the engine.
std::vector<LocalTensorPtr> StallWatch::expired(Instant now) {
  std::vector<LocalTensorPtr> expired = member_.table().past_deadline(now);
  if (now <= context_.config.stall_failure) return expired;
  for (LocalTensorPtr& tensor : member_.table().overdue(now - context_.config.stall_failure, 1)) {
    if (!tensor->has_deadline()) expired.push_back(std::move(tensor));
  }
  return expired;
}

// The coordinator's notice about late tensors is printed once on each host.
void StallWatch::on_notice(const NoticeDecision& notice) {
  own_notice_at_ = kNever;
  if (!context_.leads()) return;
  context_.log.warning(notice.in_batch ? notice.text + text_of_host() : notice.text);
}

void StallWatch::print_own_notice() {
  own_notice_at_ = kNever;
  const std::vector<LocalTensorPtr> late = late_tensors();
  if (late.empty()) return;
  const Instant now = context_.clock.now();
  context_.log.warning(late_phrase(late.front()->name, late.size(), now - late.front()->submitted,
                                   now - late.back()->submitted) +
                       (late.front()->in_batch ? " in a batch" : "") + text_of_host());
}

// Whether the leader of this host is stopped, and this rank is the first that is not.
bool StallWatch::speaks_for_stopped_leader() const {
  for (std::int32_t position = 0; position < context_.board.rank(); ++position) {
    if (!is_stopped(context_.board.presence(position))) return false;
  }
  return true;
}

// Called when the coordinator has not failed the job in time. A tensor that went into a batch
// meanwhile was late but moves, so it gets the whole deadline once more.
void StallWatch::give_up() {
  giving_up_.at = kNever;
  std::erase_if(giving_up_.tensors, [](const LocalTensorPtr& tensor) { return tensor->ended; });
  if (giving_up_.tensors.empty()) return;
  const LocalTensor& first = *giving_up_.tensors.front();
  if (first.in_batch && !giving_up_.batch_overdue) {
    giving_up_.batch_overdue = true;
    giving_up_.at = context_.clock.after(context_.config.stall_failure);
    return;
  }
  std::string text = stall_text(first);
  std::int32_t culprit = stopped_rank();
  if (!first.in_batch && (culprit < 0 || culprit == kCoordinator)) {
    culprit = kCoordinator;
    text += ", and rank 0, the coordinator, does not answer";
  }
  failure_.fail(Status::error(Code::kDeadline, text), culprit);
}

// Called when the batch of this tensor has not moved for too long. A stopped rank is found by the
// ranks of its host, a stopped leader by its neighbours too. All other ranks wait, so that the
// failure names the cause.
void StallWatch::inquire(const LocalTensorPtr& tensor) {
  if (one_host() || stopped_rank() >= 0) return fail_overdue(*tensor);
  inquiry_.tensors.push_back(tensor);
  if (inquiry_.ends_at != kNever) return;
  inquiry_.roll_called = links_ != nullptr;
  if (inquiry_.roll_called) links_->call_roll().ignore();
  inquiry_.ends_at = context_.clock.after(inquiry_.roll_called ? kRollCallGrace : kInquiryOfOthers);
}

void StallWatch::end_inquiry() {
  inquiry_.ends_at = kNever;
  std::erase_if(inquiry_.tensors, [](const LocalTensorPtr& each) { return each->ended; });
  if (inquiry_.tensors.empty()) return;
  const LocalTensorPtr tensor = inquiry_.tensors.front();
  if (!inquiry_.roll_called) return fail_overdue(*tensor);
  const auto silent = links_->silent();
  if (silent.empty()) {
    // No neighbour of this leader stands still, so another leader must find the one that does.
    inquiry_.roll_called = false;
    inquiry_.ends_at = context_.clock.after(kInquiryOfOthers - kRollCallGrace);
    return;
  }
  const Status why = silent_neighbour(context_.shape, silent.front(), stall_text(*tensor));
  failure_.fail(why, *why.rank());
}

void StallWatch::fail_overdue(const LocalTensor& tensor) {
  failure_.fail(
      Status::error(Code::kDeadline, stall_text(tensor) + deadline_text(tensor.has_deadline())),
      stopped_rank());
}

// "'x' has waited 30 s in a batch; ranks 1-3 were last in batch 7: ...; rank 0 (pid 42) is stopped"
std::string StallWatch::stall_text(const LocalTensor& tensor) const {
  const base::Nanoseconds waited = context_.clock.now() - tensor.submitted;
  return late_phrase(tensor.name, 1, waited, waited) + (tensor.in_batch ? " in a batch" : "") +
         text_of_host();
}

// "; ranks 1-3 were last in batch 7: ...; rank 0 (pid 42) is stopped"
std::string StallWatch::text_of_host() const {
  std::string text;
  std::map<std::string, std::vector<std::int32_t>> ranks_by_activity;
  std::string stopped;
  for (std::int32_t position = 0; position < context_.board.ranks(); ++position) {
    const collectives::Presence presence = context_.board.presence(position);
    const std::int32_t rank = context_.rank_at(position);
    ranks_by_activity[presence.activity.empty() ? "idle" : presence.activity].push_back(rank);
    stopped += stopped_text(rank, presence);
  }
  for (const auto& [activity, ranks] : ranks_by_activity) {
    text += "; " + base::ranks_phrase(ranks) + (ranks.size() == 1 ? " was last " : " were last ") +
            activity;
  }
  return text + stopped;
}

std::int32_t StallWatch::stopped_rank() const {
  for (std::int32_t position = 0; position < context_.board.ranks(); ++position) {
    if (is_stopped(context_.board.presence(position))) return context_.rank_at(position);
  }
  return -1;
}

}  // namespace ronde::runtime
