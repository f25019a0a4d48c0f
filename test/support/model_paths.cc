// SPDX-License-Identifier: Apache-2.0
// Replays the bodies of a model's threads; interleaving.h explains why.
#include "test/support/model_paths.h"

#include <algorithm>

#include "base/check.h"
#include "base/numbers.h"

namespace ronde::test {

Value ModelThread::perform(const Operation& operation) {
  if (used_ < results_.size()) return results_[used_++];
  throw Stop{operation};
}

Operation ModelPaths::replay(int thread, const std::vector<Value>& results) const {
  try {
    ModelThread context(thread, results);
    bodies_[base::narrow<std::size_t>(thread)](context);
  } catch (const ModelThread::Stop& stop) {
    return stop.next;
  }
  return {};  // the body has finished: kFinish
}

std::uint32_t ModelPaths::make_node(int thread, std::uint32_t parent, Value result) {
  std::vector<Value> results;
  if (parent != kNone) {
    results.push_back(result);
    for (std::uint32_t at = parent; nodes_[at].parent != kNone; at = nodes_[at].parent) {
      results.push_back(nodes_[at].result);
    }
    std::reverse(results.begin(), results.end());
  }
  const Operation next = replay(thread, results);
  const auto id = base::narrow<std::uint32_t>(nodes_.size());
  base::check(id < (1U << 24U), "the threads have too many pasts for three bytes");
  nodes_.push_back({thread, parent, result, next, {}});
  if (next.step == Step::kFinish) return finishes_.try_emplace(thread, id).first->second;
  if (next.step != Step::kCheckpoint) return id;
  const auto [at, added] = checkpoints_.try_emplace({thread, next.a}, kNone);
  if (added) at->second = make_node(thread, id, 0);
  // A checkpoint that leads to itself without an operation in between would never end.
  base::check(at->second != kNone, "a loop between checkpoints has no operation");
  return at->second;
}

std::uint32_t ModelPaths::advance(std::uint32_t node, Value result) {
  for (const auto& [value, child] : nodes_[node].children) {
    if (value == result) return child;
  }
  const std::uint32_t child = make_node(nodes_[node].thread, node, result);
  nodes_[node].children.emplace_back(result, child);
  return child;
}

}  // namespace ronde::test
