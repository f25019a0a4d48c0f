// SPDX-License-Identifier: Apache-2.0
// The positions of the threads of a model (interleaving.h): a tree of the results that their
// operations returned.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "test/support/interleaving.h"

namespace ronde::test {

// A position is a number. Threads with equal numbers go on in the same way.
class ModelPaths {
 public:
  explicit ModelPaths(std::vector<ModelBody> bodies) : bodies_(std::move(bodies)) {}

  std::uint32_t start(int thread) { return make_node(thread, kNone, 0); }
  // Returns the thread's position after its next operation has returned `result`.
  std::uint32_t advance(std::uint32_t node, Value result);
  [[nodiscard]] const Operation& next(std::uint32_t node) const { return nodes_[node].next; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  // The results that led here, through `parent`, and the operation that has none yet.
  struct Node {
    int thread;
    std::uint32_t parent;
    Value result;
    Operation next;
    std::vector<std::pair<Value, std::uint32_t>> children;
  };

  std::uint32_t make_node(int thread, std::uint32_t parent, Value result);
  [[nodiscard]] Operation replay(int thread, const std::vector<Value>& results) const;

  std::vector<ModelBody> bodies_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, Value>, std::uint32_t> checkpoints_;
  std::map<int, std::uint32_t> finishes_;
};

}  // namespace ronde::test
