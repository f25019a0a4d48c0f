// SPDX-License-Identifier: Apache-2.0
#include "base/job_shape.h"

#include <algorithm>

#include "base/numbers.h"

namespace ronde::base {

Result<JobShape> JobShape::of_leaders(std::span<const std::int32_t> leaders) {
  JobShape shape;
  for (std::size_t index = 0; index < leaders.size(); ++index) {
    const auto rank = narrow<std::int32_t>(index);
    const std::int32_t leader = leaders[index];
    // The leader that a rank reports must report itself as its leader.
    const bool known =
        leader >= 0 && leader <= rank && leaders[narrow<std::size_t>(leader)] == leader;
    if (!known) {
      return Status::error(Code::kInternal,
                           "rank " + std::to_string(rank) + " reports that rank " +
                               std::to_string(leader) +
                               " is the first of its host, which that rank does not");
    }
    if (leader == rank) shape.ranks_of_.emplace_back();
    const std::int32_t host = leader == rank ? narrow<std::int32_t>(shape.ranks_of_.size()) - 1
                                             : shape.host_of_[narrow<std::size_t>(leader)];
    auto& here = shape.ranks_of_[narrow<std::size_t>(host)];
    shape.host_of_.push_back(host);
    shape.position_of_.push_back(narrow<std::int32_t>(here.size()));
    here.push_back(rank);
  }
  if (leaders.empty()) {
    return Status::error(Code::kInternal, "a job without ranks has no shape");
  }
  return shape;
}

JobShape JobShape::one_host(std::int32_t ranks) {
  return of_leaders(std::vector<std::int32_t>(narrow<std::size_t>(ranks), 0)).value();
}

std::int32_t JobShape::ranks() const { return narrow<std::int32_t>(host_of_.size()); }

std::int32_t JobShape::hosts() const { return narrow<std::int32_t>(ranks_of_.size()); }

std::int32_t JobShape::host_of(std::int32_t rank) const {
  return host_of_.at(narrow<std::size_t>(rank));
}

std::int32_t JobShape::position_of(std::int32_t rank) const {
  return position_of_.at(narrow<std::size_t>(rank));
}

std::span<const std::int32_t> JobShape::ranks_of(std::int32_t host) const {
  return ranks_of_.at(narrow<std::size_t>(host));
}

std::int32_t JobShape::slices() const {
  std::int32_t fewest = ranks();
  for (const auto& here : ranks_of_) {
    fewest = std::min(fewest, narrow<std::int32_t>(here.size()));
  }
  return fewest;
}

std::string JobShape::host_name(std::int32_t host) const {
  return names_.empty() ? "#" + std::to_string(host) : names_.at(narrow<std::size_t>(host));
}

std::string JobShape::text() const {
  const auto each = ranks_of_.front().size();
  const bool even = std::all_of(ranks_of_.begin(), ranks_of_.end(),
                                [&](const auto& here) { return here.size() == each; });
  if (even) {
    return std::to_string(hosts()) + (hosts() == 1 ? " host x " : " hosts x ") +
           std::to_string(each) + (each == 1 ? " rank" : " ranks");
  }
  std::string text = "hosts of ";
  for (std::size_t host = 0; host < ranks_of_.size(); ++host) {
    text += (host == 0 ? "" : " + ") + std::to_string(ranks_of_[host].size());
  }
  return text + " ranks";
}

}  // namespace ronde::base
