// SPDX-License-Identifier: Apache-2.0
// A tensor: numbers, and where they came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "bindings/trainer/tensor/values.h"

namespace ronde::trainer {

class Tape;

// An n-dimensional array of f32 on a tape. A handle: a copy is the same tensor. It belongs to the
// pass of its tape in which it was made: after the next begin() its numbers are refused.
//
// Thread safety: belongs to the thread of its tape.
class Tensor {
 public:
  static constexpr std::size_t kNoNode = std::numeric_limits<std::size_t>::max();

  Tensor() = default;

  [[nodiscard]] const Shape& shape() const noexcept { return values_.shape; }
  // Side number `i`; throws TrainerError if there are fewer.
  [[nodiscard]] std::size_t side(std::size_t i) const;
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  // The numbers in row-major order; they stay until the tape's next begin(). Reading them again
  // costs nothing.
  [[nodiscard]] std::span<const float> values() const;
  // The only number of a tensor of one element.
  [[nodiscard]] float item() const;

  // The tape this lies on; throws TrainerError for an empty tensor, and for one of an earlier pass.
  [[nodiscard]] Tape& tape() const;
  // For operations. raw() throws as tape() does; `node` is kNoNode where no gradient is wanted.
  [[nodiscard]] const Values& raw() const;
  [[nodiscard]] std::size_t node() const noexcept { return node_; }
  [[nodiscard]] bool needs_gradient() const noexcept { return node_ != kNoNode; }

 private:
  friend class Tape;
  Tensor(Tape& tape, std::uint64_t pass, const char* operation, Values values, std::size_t node)
      : tape_(&tape), values_(std::move(values)), node_(node), pass_(pass), operation_(operation) {}

  Tape* tape_ = nullptr;
  Values values_;
  std::size_t node_ = kNoNode;
  std::uint64_t pass_ = 0;      // of the tape
  const char* operation_ = "";  // what made it: a literal
};

}  // namespace ronde::trainer
