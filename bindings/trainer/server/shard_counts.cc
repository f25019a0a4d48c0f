// SPDX-License-Identifier: Apache-2.0
// What is said of a group and its members: counts, names, and why a task is not of this training.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

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

// Only the first server is asked.
bool Shard::all_told() const {
  return group_ != 0 || std::ranges::all_of(members_, [this](const Member& one) {
           return !one.done || one.told || one.silent || options_.is_chief(one.address);
         });
}

// Why a task with these settings of the training has no part in that of the variables here.
std::string Shard::unlike(const Address& from, std::string_view training) const {
  const auto differs = created() ? difference(training_, training) : std::nullopt;
  if (!differs) return {};
  return text_of(from) + " has " + differs->second + ", and the variables of ps " +
         std::to_string(options_.index) + " are those of a training with " + differs->first +
         ": start all tasks with the same program and flags, and end the servers of an earlier "
         "training first";
}

std::vector<std::uint64_t> Shard::steps() const {
  std::vector<std::uint64_t> steps;
  steps.reserve(options_.workers);
  for (std::size_t i = 0; i < options_.workers; ++i) steps.push_back(members_[i].counted);
  return steps;
}

// A hello, whose settings name each variable; those who are in may push gradients, and rows, each
// of which may come more than once. Only the chief, or the server before this one, creates
// variables.
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

std::string Shard::counts() const {
  std::vector<std::uint64_t> dropped;
  std::vector<std::string> lost;
  const Member& chief = members_[options_.has_chief ? options_.workers : 0];
  std::uint32_t there = 0;
  std::uint32_t expected = 0;
  for (std::size_t i = 0; i < options_.workers; ++i) {
    dropped.push_back(members_[i].dropped);
    if (members_[i].life == Life::kGone && !members_[i].done) lost.push_back(name_of(members_[i]));
    there += members_[i].life == Life::kThere ? 1U : 0U;
    expected += members_[i].life == Life::kExpected ? 1U : 0U;
  }
  there += members_[options_.workers + 1U].life == Life::kThere ? 1U : 0U;  // an evaluator
  return nlohmann::json{{"version", variables_ ? variables_->version() : 0},
                        {"steps", steps()},
                        {"dropped", dropped},
                        {"staleness", staleness_},
                        {"there", there},
                        {"lost", lost},
                        {"chief", !chief.silent},
                        {"closed", closed_},
                        {"end", end_},
                        {"created", created()},
                        {"expected", expected},
                        {"most_ahead", most_ahead_}}
      .dump();
}

}  // namespace ronde::trainer::server
