// SPDX-License-Identifier: Apache-2.0
// Values that differ from replica to replica.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/shape.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// A value for each replica of this process, in the replicas' order.
template <typename T>
class PerReplica {
 public:
  PerReplica() = default;
  explicit PerReplica(std::vector<T> values) : values_(std::move(values)) {}

  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] const T& operator[](std::size_t replica) const { return values_.at(replica); }
  [[nodiscard]] const std::vector<T>& values() const noexcept { return values_; }

 private:
  std::vector<T> values_;
};

// Numbers with a shape, row-major, on no tape: what a step returns for others to reduce or gather.
struct Array {
  Shape shape;
  std::vector<float> values;

  // A copy of what a tensor holds now.
  static Array of(const Tensor& tensor) {
    return {tensor.shape(), {tensor.values().begin(), tensor.values().end()}};
  }
  friend bool operator==(const Array&, const Array&) = default;
};

enum class ReduceOp : unsigned char { kSum, kMean };

}  // namespace ronde::trainer
