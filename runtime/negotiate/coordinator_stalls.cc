// SPDX-License-Identifier: Apache-2.0
// What the coordinator does about late tensors: it gathers the reports of the ranks, finds out for
// whom they wait, and notifies all hosts, or fails the job.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/host_name.h"
#include "base/text.h"
#include "runtime/negotiate/coordinator.h"
#include "runtime/negotiate/relay.h"
#include "runtime/negotiate/stopped.h"

namespace ronde::runtime {

using base::Code;
using base::Instant;
using base::Nanoseconds;
using base::Result;
using base::Status;

namespace {

constexpr std::int32_t kOwnHost = 0;  // the coordinator's own host
constexpr std::size_t kMostPidsNamed = 4;
constexpr std::size_t kMostHostsNamed = 4;
constexpr std::size_t kMostStatesNamed = 3;

Nanoseconds longest_of(std::span<const StalledTensor> late) {
  Nanoseconds longest{};
  for (const StalledTensor& tensor : late) longest = std::max(longest, tensor.waited);
  return longest;
}

}  // namespace

// Whether a tensor that was late has been executed since it was reported; then its name may stand
// for the tensor of a later step.
bool Coordinator::is_over(const Stall::Late& tensor) const {
  return negotiator_.was_in_batch_since(tensor.name, tensor.batches);
}

void Coordinator::add_to(Stall& stall, const StalledAnnouncement& announced, Instant now) const {
  for (const LateTensor& late : announced.tensors) {
    const Instant since = now - Nanoseconds(late.waited_ns);
    const auto [place, fresh] = stall.places.emplace(late.name, stall.tensors.size());
    if (fresh) stall.tensors.push_back({late.name, since});
    Stall::Late& tensor = stall.tensors[place->second];
    // What an earlier report was about may be over, and this one be about the next step.
    tensor.since = !fresh && is_over(tensor) ? since : std::min(tensor.since, since);
    tensor.batches = negotiator_.batches();
  }
}

void Coordinator::on_stalled(std::int32_t rank, const StalledAnnouncement& announced) {
  const Instant now = clock_.now();
  if (announced.failed) {
    expired_.reporter = rank;
    expired_.own_deadline = announced.own_deadline;
    return add_to(expired_, announced, now);
  }
  const Nanoseconds gathering = gathering_time(config_);
  const Instant gathered = clock_.after(gathering);
  if (announced.in_batch) {
    // It is not known here when this is over, so it is not kept for long. Ranks report it again.
    if (gathered + gathering < batch_notice_.not_before) return;
    if (batch_notice_.at == base::kNever) batch_notice_.at = gathered;
    return add_to(batched_, announced, now);
  }
  // The next notice has what comes while other hosts are asked.
  if (late_.roll_called) return;
  if (notice_.at == base::kNever) notice_.at = std::max(gathered, notice_.not_before);
  add_to(late_, announced, now);
}

Status Coordinator::report_stalls() {
  if (!expired_.empty()) RONDE_RETURN_IF_ERROR(fail_expired());
  if (notice_.at == base::kNever && batch_notice_.at == base::kNever) return {};
  const Instant now = clock_.now();
  if (now >= batch_notice_.at) {
    RONDE_ASSIGN_OR_RETURN(const auto posted, notify_batched());
    batch_notice_.at = base::kNever;
    if (posted) batch_notice_.not_before = clock_.after(config_.stall_warning);
  }
  if (now >= notice_.at) {
    RONDE_ASSIGN_OR_RETURN(const auto posted, notify_late());
    if (!late_.empty()) return {};  // other hosts must answer first
    notice_.at = base::kNever;
    // Where all was over there is no notice, and the next one need not wait.
    if (posted) notice_.not_before = clock_.after(config_.stall_warning);
  }
  return {};
}

// All ranks wait, and nobody can end it: there is one text for all of them, first as a warning.
Status Coordinator::report_deadlock() {
  if (!deadlock_.may_be()) return {};
  const auto found = deadlock_.judge(negotiator_.batches() + sets_.decided(),
                                     negotiator_.has_ready(), clock_.now());
  if (!found) return {};
  const std::string grace = "RONDE_DEADLOCK_GRACE_SECONDS";
  if (!found->fails) {
    return post(NoticeDecision{found->text + "; the job fails in " +
                                   base::seconds_text(config_.deadlock_grace) + " (" + grace + ")",
                               false});
  }
  collectives::FailureRecord record;
  record.reporter = kCoordinator;
  record.code = Code::kDeadline;
  record.text = found->text + ". This is the end of " + grace;
  desk_.board().fail(record);
  return {};
}

// Asks which ranks wait for the tensors. While a host has not answered, it calls the roll, and
// after a while returns kSilence.
Result<Coordinator::Knowledge> Coordinator::find_out(Stall& stall) {
  bool all = true;
  for (Stall::Late& tensor : stall.tensors) {
    if (!tensor.known) tensor.known = is_over(tensor) || negotiator_.find_out(tensor.name);
    all = all && tensor.known;
  }
  if (all) return Knowledge::kAll;
  if (!stall.roll_called) {
    stall.roll_called = true;
    stall.answer_by = clock_.after(kRollCallGrace);
    RONDE_RETURN_IF_ERROR(links_->call_roll());
  }
  return clock_.now() < stall.answer_by ? Knowledge::kAsking : Knowledge::kSilence;
}

// The stalled tensors whose waiting ranks are known, and which some rank still waits for; the
// oldest first.
std::vector<StalledTensor> Coordinator::waiting_of(const Stall& stall) const {
  std::vector<StalledTensor> result;
  const Instant now = clock_.now();
  for (const Stall::Late& tensor : stall.tensors) {
    if (!tensor.known || is_over(tensor)) continue;
    auto waiting = negotiator_.waiting_for(tensor.name);
    if (!waiting) continue;  // the tensor is in a batch or about to be
    result.push_back({tensor.name, now - tensor.since, std::move(waiting->ready),
                      std::move(waiting->missing), std::move(waiting->steps)});
  }
  std::stable_sort(
      result.begin(), result.end(),
      [](const StalledTensor& a, const StalledTensor& b) { return a.waited > b.waited; });
  return result;
}

Result<bool> Coordinator::notify_batched() {
  if (batched_.empty()) return false;
  const Stall stall = std::exchange(batched_, {});
  const auto [oldest, youngest] = std::minmax_element(
      stall.tensors.begin(), stall.tensors.end(),
      [](const Stall::Late& a, const Stall::Late& b) { return a.since < b.since; });
  const Instant now = clock_.now();
  RONDE_RETURN_IF_ERROR(post(NoticeDecision{
      late_phrase(oldest->name, stall.tensors.size(), now - oldest->since, now - youngest->since) +
          " in a batch" + time_left(now - oldest->since),
      true}));
  return true;
}

Result<bool> Coordinator::notify_late() {
  RONDE_ASSIGN_OR_RETURN(const auto knowledge, find_out(late_));
  if (knowledge == Knowledge::kAsking) return false;
  const std::vector<StalledTensor> waiting = waiting_of(late_);
  Nanoseconds longest = longest_of(waiting);
  std::string text = waiting.empty() ? "" : describe(waiting, nullptr);
  if (knowledge == Knowledge::kSilence) {
    const auto silent = links_->silent();
    text += (text.empty() ? "" : "; ") + phrase_of_unknown(late_, longest) + "; " +
            (silent.empty()
                 ? "a host does not answer which of its ranks have submitted it"
                 : silent.front().peer + " " + silent.front().reason + " and may stand still");
  }
  told_ = std::exchange(late_, {});
  if (text.empty()) return false;
  RONDE_RETURN_IF_ERROR(post(NoticeDecision{text + time_left(longest), false}));
  return true;
}

// What has waited too long, and behind it what the last notice named, where only together they show
// that names cross or are misspelt.
std::vector<StalledTensor> Coordinator::with_told(std::vector<StalledTensor> waiting) const {
  std::vector<StalledTensor> all = waiting;
  for (StalledTensor& told : waiting_of(told_)) {
    const bool there = told.missing.empty() ||
                       std::any_of(waiting.begin(), waiting.end(),
                                   [&](const StalledTensor& one) { return one.name == told.name; });
    if (!there) all.push_back(std::move(told));
  }
  const StallVerdict verdict = judge_stall(all);
  return verdict.crossed || !verdict.alike.empty() ? all : waiting;
}

Status Coordinator::fail_expired() {
  RONDE_ASSIGN_OR_RETURN(const auto knowledge, find_out(expired_));
  if (knowledge == Knowledge::kAsking) return {};
  std::vector<StalledTensor> waiting = waiting_of(expired_);
  // Where no rank is missing, the last one stopped while it submitted. The ranks of its host find
  // it by its process state.
  std::erase_if(waiting, [](const StalledTensor& tensor) { return tensor.missing.empty(); });
  if (!waiting.empty()) {
    collectives::FailureRecord record;
    record.reporter = expired_.reporter;
    record.code = Code::kDeadline;
    record.text =
        describe(with_told(waiting), &record.culprit) + deadline_text(expired_.own_deadline);
    desk_.board().fail(record);
  } else if (knowledge == Knowledge::kSilence) {
    const auto silent = links_->silent();
    // The silent host may be further down the tree: its own neighbours find it, or the deadline of
    // the rank that waits ends the job.
    expired_.answer_by = base::kNever;
    if (silent.empty()) return {};
    Nanoseconds longest{};
    const std::string late = phrase_of_unknown(expired_, longest);
    return silent_neighbour(shape_, silent.front(), late);
  }
  expired_ = {};
  return {};
}

// The tensors of which it is not known who waits. Raises `longest` to what the oldest has waited.
std::string Coordinator::phrase_of_unknown(const Stall& stall, Nanoseconds& longest) const {
  const Stall::Late* oldest = nullptr;
  Instant youngest{};
  std::size_t count = 0;
  for (const Stall::Late& tensor : stall.tensors) {
    if (tensor.known) continue;
    ++count;
    if (oldest == nullptr || tensor.since < oldest->since) oldest = &tensor;
    youngest = std::max(youngest, tensor.since);
  }
  if (oldest == nullptr) return {};
  const Instant now = clock_.now();
  longest = std::max(longest, now - oldest->since);
  return late_phrase(oldest->name, count, now - oldest->since, now - youngest);
}

// Reads /proc for each missing rank of this host, once for all tensors. `culprit`, if given: the
// rank that is to be blamed.
std::string Coordinator::describe(std::span<const StalledTensor> late,
                                  std::int32_t* culprit) const {
  const auto place = [this](const std::vector<std::int32_t>& ranks) { return place_of(ranks); };
  const std::string text = stall_notice(late, judge_stall(late), place);
  std::set<std::int32_t> missing;
  for (const StalledTensor& tensor : late) {
    missing.insert(tensor.missing.begin(), tensor.missing.end());
  }
  if (culprit != nullptr) *culprit = late.front().missing.front();
  std::map<std::string, std::vector<std::int32_t>> ranks_by_activity;
  std::string stopped;
  for (const std::int32_t rank : missing) {
    if (shape_.host_of(rank) != kOwnHost) continue;
    const auto presence = desk_.board().presence(shape_.position_of(rank));
    if (!presence.activity.empty()) ranks_by_activity[presence.activity].push_back(rank);
    const std::string stands_still = stopped_text(rank, presence);
    if (culprit != nullptr && stopped.empty() && !stands_still.empty()) *culprit = rank;
    stopped += stands_still;
  }
  std::vector<std::string> states;
  states.reserve(ranks_by_activity.size());
  for (const auto& [activity, ranks] : ranks_by_activity) {
    states.push_back(base::ranks_phrase(ranks) +
                     (ranks.size() == 1 ? " was last " : " were last ") + activity);
  }
  return text + stopped + (states.empty() ? "" : "; ") + base::some_of(states, kMostStatesNamed);
}

// " (host node3, pid 42)", " (hosts node3, node5)"
std::string Coordinator::place_of(const std::vector<std::int32_t>& ranks) const {
  std::set<std::int32_t> hosts;
  for (const std::int32_t rank : ranks) hosts.insert(shape_.host_of(rank));
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const std::int32_t host : hosts) {
    names.push_back(shape_.hosts() == 1 ? base::host_name() : shape_.host_name(host));
  }
  std::string text =
      (names.size() == 1 ? " (host " : " (hosts ") + base::some_of(names, kMostHostsNamed);
  if (hosts == std::set<std::int32_t>{kOwnHost} && ranks.size() <= kMostPidsNamed) {
    std::vector<std::string> pids;
    pids.reserve(ranks.size());
    for (const std::int32_t rank : ranks) {
      pids.push_back(std::to_string(desk_.board().presence(shape_.position_of(rank)).pid));
    }
    text += (pids.size() == 1 ? ", pid " : ", pids ") + base::some_of(pids, kMostPidsNamed);
  }
  return text + ")";
}

// "; the job fails in 150 s (RONDE_STALL_FAILURE_SECONDS)": how much of the deadline is left to
// what has waited so long. The deadline of a tensor that goes into a batch late may be granted once
// more.
std::string Coordinator::time_left(Nanoseconds waited) const {
  const Nanoseconds left = std::max(config_.stall_failure - waited, Nanoseconds(0));
  return "; the job fails in " + base::seconds_text(left) + " (RONDE_STALL_FAILURE_SECONDS)";
}

}  // namespace ronde::runtime
