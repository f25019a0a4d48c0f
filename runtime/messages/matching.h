// SPDX-License-Identifier: Apache-2.0
// Which message belongs to which receive: in the order in which they were sent and asked for, for
// each tag and sender; a receive from any rank takes what has come first. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/messages/message.h"

namespace ronde::runtime {

// Posted: a pointer to what waits for a message; Arrived: a value, what has come for nobody yet.
//
// Thread safety: one thread at a time.
template <typename Posted, typename Arrived>
class Matching {
 public:
  // What this receive gets, and from whom, if it is there already.
  std::optional<std::pair<std::int32_t, Arrived>> take_arrived(std::int64_t tag,
                                                               std::int32_t from) {
    const auto found = queues_.find(tag);
    if (found == queues_.end()) return std::nullopt;
    auto& arrived = found->second.arrived;
    for (auto each = arrived.begin(); each != arrived.end(); ++each) {
      if (from != MessageRequest::kAnyRank && each->first != from) continue;
      std::pair<std::int32_t, Arrived> taken = std::move(*each);
      arrived.erase(each);
      --arrived_;
      return taken;
    }
    return std::nullopt;
  }
  void post(std::int64_t tag, std::int32_t from, Posted receive) {
    queue(tag).posted.emplace_back(from, std::move(receive));
  }
  // Whoever waits for a message of this sender; nullptr: nobody.
  Posted take_posted(std::int64_t tag, std::int32_t from) {
    const auto found = queues_.find(tag);
    if (found == queues_.end()) return nullptr;
    auto& posted = found->second.posted;
    for (auto each = posted.begin(); each != posted.end(); ++each) {
      if (each->first != MessageRequest::kAnyRank && each->first != from) continue;
      Posted taken = std::move(each->second);
      posted.erase(each);
      return taken;
    }
    return nullptr;
  }
  void store(std::int64_t tag, std::int32_t from, Arrived arrived) {
    queue(tag).arrived.emplace_back(from, std::move(arrived));
    ++arrived_;
  }
  // Forgets a receive.
  void remove(std::int64_t tag, const Posted& receive) {
    const auto found = queues_.find(tag);
    if (found == queues_.end()) return;
    std::erase_if(found->second.posted,
                  [&receive](const auto& each) { return each.second == receive; });
  }
  // Forgets what has come for nobody, and returns it in the order of senders' calls for each tag.
  std::vector<std::pair<std::int32_t, Arrived>> take_all_arrived() {
    std::vector<std::pair<std::int32_t, Arrived>> all;
    for (auto& [tag, each] : queues_) {
      for (auto& arrived : each.arrived) all.push_back(std::move(arrived));
      each.arrived.clear();
    }
    arrived_ = 0;
    return all;
  }
  [[nodiscard]] std::size_t arrived() const { return arrived_; }

 private:
  struct Queue {
    std::deque<std::pair<std::int32_t, Posted>> posted;
    std::deque<std::pair<std::int32_t, Arrived>> arrived;
  };
  // Programs use few tags again and again, whose queues are kept; those of many tags are not.
  static constexpr std::size_t kMostIdleQueues = 256;

  Queue& queue(std::int64_t tag) {
    const auto found = queues_.find(tag);
    if (found != queues_.end()) return found->second;
    if (queues_.size() >= most_) {
      std::erase_if(queues_, [](const auto& each) {
        return each.second.posted.empty() && each.second.arrived.empty();
      });
      most_ = 2 * queues_.size() + kMostIdleQueues;
    }
    return queues_[tag];
  }

  std::map<std::int64_t, Queue> queues_;
  std::size_t most_ = kMostIdleQueues;
  std::size_t arrived_ = 0;
};

}  // namespace ronde::runtime
