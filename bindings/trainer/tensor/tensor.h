// SPDX-License-Identifier: Apache-2.0
// A tensor: numbers, and where they came from.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "bindings/trainer/tensor/values.h"

namespace ronde::trainer {

class Tape;

// An n-dimensional array of f32 on a tape. A handle: a copy is the same tensor. It is valid until
// the tape's next begin().
//
// Thread safety: belongs to the thread of its tape.
class Tensor {
 public:
  static constexpr std::size_t kNoNode = std::numeric_limits<std::size_t>::max();

  Tensor() = default;
  // For operations: `node` is kNoNode where no gradient is wanted.
  Tensor(Tape& tape, Values values, std::size_t node)
      : tape_(&tape), values_(std::move(values)), node_(node) {}

  [[nodiscard]] const Shape& shape() const noexcept { return values_.shape; }
  // Side number `i`; throws TrainerError if there are fewer.
  [[nodiscard]] std::size_t side(std::size_t i) const;
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  // The numbers in row-major order; they stay until the tape's next begin().
  [[nodiscard]] std::span<const float> values() const;
  // The only number of a tensor of one element.
  [[nodiscard]] float item() const;

  // The tape this lies on; throws TrainerError for an empty tensor.
  [[nodiscard]] Tape& tape() const;
  // For operations.
  [[nodiscard]] const Values& raw() const noexcept { return values_; }
  [[nodiscard]] std::size_t node() const noexcept { return node_; }
  [[nodiscard]] bool needs_gradient() const noexcept { return node_ != kNoNode; }

 private:
  Tape* tape_ = nullptr;
  Values values_;
  std::size_t node_ = kNoNode;
};

}  // namespace ronde::trainer
