// SPDX-License-Identifier: Apache-2.0
// A group's reports about its members: counts, names, and why a task is not of this training.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

std::string Shard::name_of(const Member& member) const {
  const auto at = static_cast<std::uint32_t>(&member - members_.data());
  if (at > options_.workers) return text_of({Role::kEvaluator, 0, 0});
  if (at == options_.workers) return text_of({Role::kChief, 0, 0});
  const Address address{Role::kWorker, at, 0};
  return text_of(address) + (options_.is_chief(address) ? ", the chief," : "");
}

// Tasks ask the first server only.
bool Shard::all_told() const {
  const bool failed = closing_ && !closing_->text.empty();
  return group_ != 0 || std::ranges::all_of(members_, [this, failed](const Member& one) {
           if (failed) return one.told || one.life != Life::kExpected;
           return !one.done || one.told || one.silent || options_.is_chief(one.address);
         });
}

// Why a task with these settings does not belong to the training of these variables.
std::string Shard::unlike(const Address& from, std::string_view training) const {
  const auto differs = created() ? difference(training_, training) : std::nullopt;
  if (!differs) return {};
  return text_of(from) + " has " + differs->second + ", and the variables of ps " +
         std::to_string(options_.index) + " are those of a training with " + differs->first +
         ": start all tasks with the same program and flags, and end the servers of an earlier "
         "training first";
}

// A stranger's message is a hello, whose settings name each variable. Members push gradients, and
// rows, each of which may come more than once. Only the chief, or the primary of this standby,
// creates variables.
std::size_t Shard::most_bytes(const Address& from) const {
  constexpr std::size_t kOfStrangers = std::size_t{1} << 22U;
  constexpr std::size_t kOfRows = std::size_t{1} << 28U;
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  if (!knows(from) && !believes(from)) return kOfStrangers;
  if (created()) return kOfRows + 4 * sizeof(float) * variables_->size();
  return options_.is_chief(from) || believes(from) ? kAny : kOfStrangers;
}

std::size_t Shard::kept() const {
  std::size_t count = unconfirmed_.size() + answers_.size();
  for (const Member& member : members_) {
    count += (member.waits ? 1U : 0U) + (member.held ? 1U : 0U);
  }
  return count;
}

ServerCounts Shard::counts() const {
  const Member& chief = members_[options_.has_chief ? options_.workers : 0];
  ServerCounts counts;
  counts.global_step = variables_ ? variables_->version() : 0;
  counts.staleness = staleness_;
  counts.most_ahead = most_ahead_;
  counts.chief_is_heard = !chief.silent;
  counts.closed = closed();
  counts.end = end_;
  counts.created = created();
  for (std::size_t i = 0; i < options_.workers; ++i) {
    const Member& one = members_[i];
    counts.steps_by_worker.push_back(one.counted);
    counts.dropped_by_worker.push_back(one.dropped);
    if (one.life == Life::kGone && !one.done) counts.lost.push_back(name_of(one));
    counts.there += one.life == Life::kThere ? 1U : 0U;
    counts.expected += one.life == Life::kExpected ? 1U : 0U;
  }
  const Member& evaluator = members_[options_.workers + 1U];
  counts.there += evaluator.life == Life::kThere ? 1U : 0U;
  return counts;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServerCounts, global_step, steps_by_worker, dropped_by_worker,
                                   staleness, there, expected, most_ahead, lost, chief_is_heard,
                                   closed, end, created)

std::string ServerCounts::text() const { return nlohmann::json(*this).dump(); }

ServerCounts ServerCounts::of(const std::string& text) { return nlohmann::json::parse(text); }

std::string ServerCounts::staleness_text() const {
  std::string text;
  for (std::size_t i = 0; i < staleness.size(); ++i) {
    if (staleness[i] == 0) continue;
    text += (text.empty() ? "" : ",") + std::to_string(i) +
            (i + 1 == staleness.size() ? "+:" : ":") + std::to_string(staleness[i]);
  }
  return text;
}

}  // namespace ronde::trainer::server
