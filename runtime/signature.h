// SPDX-License-Identifier: Apache-2.0
// What a rank says about a tensor, and what the ranks must agree on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "base/tensor.h"

namespace ronde::runtime {

enum class Operation : std::uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kAllgather = 2,
  kBarrier = 3,
};

[[nodiscard]] std::string_view name_of(Operation operation);

// Everything about a tensor but its name and its memory. Fields that an operation does not use keep
// their defaults, so that plain equality compares what matters (see normalized).
struct Signature {
  Operation operation = Operation::kAllreduce;
  base::DType dtype = base::DType::kF32;
  base::ReduceOp op = base::ReduceOp::kAverage;
  std::int32_t root = 0;
  std::int32_t device = -1;
  std::int32_t priority = 0;  // not compared: the coordinator follows its own
  double prescale = 1.0;
  double postscale = 1.0;
  base::Shape shape;

  friend bool operator==(const Signature& a, const Signature& b);
};

// The same signature with the fields its operation does not use at their defaults.
[[nodiscard]] Signature normalized(Signature signature);

// True when two ranks may say these about one tensor: equal, but for the first dimension of an
// allgather.
[[nodiscard]] bool agree(const Signature& a, const Signature& b);

// "allreduce(sum, f32, [128, 784])"
[[nodiscard]] std::string describe(const Signature& signature);

// A tensor that all ranks agreed on. `first_dimensions` has one number per rank for an allgather
// and is empty otherwise.
struct AgreedTensor {
  Signature signature;
  std::vector<std::int64_t> first_dimensions;

  friend bool operator==(const AgreedTensor&, const AgreedTensor&) = default;
};

// The bytes that this tensor moves (for an allgather, of all ranks together). Shapes were checked
// when they were submitted or decoded.
[[nodiscard]] base::Bytes payload_of(const AgreedTensor& tensor);

// "0", "0-2", "0, 2-3": ranks in ascending order.
[[nodiscard]] std::string rank_list(const std::vector<std::int32_t>& ranks);
// "rank 1" or "ranks 0-2".
[[nodiscard]] std::string ranks_phrase(const std::vector<std::int32_t>& ranks);

}  // namespace ronde::runtime
