// SPDX-License-Identifier: Apache-2.0
#include "runtime/negotiate/deadlock_watch.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace ronde::runtime {

using base::Instant;
using base::kNever;

namespace {

// The texts of failures are cut at some hundred letters, and ranks often wait for the same.
constexpr std::size_t kMostGroupsNamed = 6;

// "'a' (train.py:12), 'b' (train.py:13) and 3 more"
std::string tensors_of(const StandingAnnouncement& said) {
  std::vector<std::string> names;
  names.reserve(said.tensors.size());
  for (const StandingTensor& tensor : said.tensors) {
    names.push_back(tensor.name + (tensor.place.empty() ? "" : " (" + tensor.place + ")"));
  }
  if (names.empty()) return "what is not among the tensors of all ranks";
  return base::joined(names) + (said.more > 0 ? " and " + std::to_string(said.more) + " more" : "");
}

}  // namespace

DeadlockWatch::DeadlockWatch(std::int32_t ranks, base::Nanoseconds grace)
    : grace_(grace), ranks_(static_cast<std::size_t>(ranks)) {}

void DeadlockWatch::on_standing(std::int32_t rank, const StandingAnnouncement& standing,
                                Instant now) {
  Rank& of = ranks_[static_cast<std::size_t>(rank)];
  const bool as_before = of.said.stands && standing.stands && of.said.moves == standing.moves &&
                         of.said.batches == standing.batches && of.said.sets == standing.sets &&
                         now - of.heard < kStandingForgotten;
  if (of.said.stands) --standing_;
  if (standing.stands) ++standing_;
  if (!as_before) of.since = now;
  of.said = standing;
  of.heard = now;
}

bool DeadlockWatch::all_stand(std::uint64_t batches, Instant now) const {
  return standing_ == ranks_.size() &&
         std::all_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& rank) {
                       return rank.said.batches == batches && now - rank.heard < kStandingForgotten;
                     }) &&
         sets_agree() && nothing_is_on_its_way();
}

bool DeadlockWatch::nothing_is_on_its_way() const {
  std::uint64_t sent = 0;
  std::uint64_t taken = 0;
  for (const Rank& rank : ranks_) {
    sent += rank.said.frames_sent;
    taken += rank.said.frames_taken;
  }
  return sent == taken;
}

// Whether no rank is about to hear of a batch of a process set that another one knows of.
bool DeadlockWatch::sets_agree() const {
  std::map<std::int32_t, std::uint64_t> known;
  for (const Rank& rank : ranks_) {
    for (const StandingSet& set : rank.said.sets) {
      if (known.try_emplace(set.number, set.batches).first->second != set.batches) return false;
    }
  }
  return true;
}

// A rank that has done something meanwhile gets the whole grace.
Instant DeadlockWatch::begin_of_grace() const {
  Instant begin = told_;
  for (const Rank& rank : ranks_) begin = std::max(begin, rank.since);
  return begin;
}

std::optional<DeadlockWatch::Finding> DeadlockWatch::judge(std::uint64_t batches, bool can_go_on,
                                                           Instant now) {
  if (can_go_on || !all_stand(batches, now)) {
    told_ = kNever;
    return std::nullopt;
  }
  if (told_ == kNever) {
    told_ = now;
    return Finding{false, describe()};
  }
  if (now - begin_of_grace() < grace_) return std::nullopt;
  return Finding{true, describe()};
}

Instant DeadlockWatch::next() const {
  if (told_ == kNever) return kNever;
  const Instant begin = begin_of_grace();
  return grace_ >= kNever - begin ? kNever : begin + grace_;
}

std::string DeadlockWatch::describe() const {
  std::map<std::string, std::vector<std::int32_t>> ranks_by_tensors;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_by_tensors[tensors_of(ranks_[rank].said)].push_back(static_cast<std::int32_t>(rank));
  }
  // In the order of the ranks.
  std::map<std::vector<std::int32_t>, std::string> tensors_by_ranks;
  for (auto& [tensors, ranks] : ranks_by_tensors) tensors_by_ranks.emplace(ranks, tensors);
  std::vector<std::string> parts;
  for (const auto& [ranks, tensors] : tensors_by_ranks) {
    if (parts.size() == kMostGroupsNamed) {
      parts.push_back("the other ranks for others");
      break;
    }
    parts.push_back(base::ranks_phrase(ranks) + (ranks.size() == 1 ? " waits for " : " wait for ") +
                    tensors);
  }
  return "deadlock: all ranks stand still, and nothing that they wait for can become complete: " +
         base::joined(parts, ", ");
}

}  // namespace ronde::runtime
