// SPDX-License-Identifier: Apache-2.0
// How a rank describes a tensor, what the ranks must agree on, and how the plan names it. Plain
// values and pure functions: no clock, no I/O, no memory of tensors.
//
// Thread safety: values, as thread-safe as an int.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "base/operations.h"
#include "base/tensor.h"

namespace ronde::runtime {

using base::Operation;

// One tensor of a group.
struct GroupMember {
  std::string name;
  base::Shape shape;

  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};

// Everything about a tensor but its name and its memory. Fields that an operation does not use keep
// their defaults, so that plain equality compares what matters (see normalized).
struct Signature {
  Operation operation{};
  base::DType dtype = base::DType::kF32;
  base::ReduceOp op = base::ReduceOp::kAverage;
  std::int32_t root = 0;
  // Where its memory is; -1 means in host memory. Each rank numbers its own devices, so ranks
  // compare only whether the memory is on a device.
  std::int32_t device = -1;
  std::int32_t priority = 0;  // not compared: the coordinator uses that of its own rank
  // Allreduce: the tensor lies on the board and can be reduced in place. Not compared: where ranks
  // differ, the tensor is not reduced in place (agree_on).
  bool on_board = false;
  // Averages: by weights, which each submission brings.
  bool weighted = false;
  double prescale = 1.0;
  double postscale = 1.0;
  base::Compression compression = base::Compression::kNone;
  base::Shape shape;  // a group has one dimension: the elements of all members
  // Reduce-scatter: the rows of each rank; empty: shared as evenly as possible (rows_of_rank).
  std::vector<std::int64_t> splits;
  std::vector<GroupMember> members;  // in the order of the call; empty for a single tensor

  friend bool operator==(const Signature& a, const Signature& b);
};

// True when devices execute the tensor, and not the data plane of the CPUs.
[[nodiscard]] bool on_device(const Signature& signature);

// The same signature with the fields its operation does not use at their defaults.
void normalize(Signature& signature);
[[nodiscard]] inline Signature normalized(Signature signature) {
  normalize(signature);
  return signature;
}

// True when two ranks may submit one tensor with these signatures: they are equal, but for the
// rows where each rank has its own number of them.
[[nodiscard]] bool agree(const Signature& a, const Signature& b);

// "allreduce(sum, f32, [128, 784])". "*" stands for rows that nobody else learns.
[[nodiscard]] std::string describe(const Signature& signature);

// A tensor that all ranks agreed on. `first_dimensions` has the rows of each rank where these may
// differ and all ranks learn them, and is empty otherwise. Where nobody else learns them the first
// dimension is 0 here, and each rank knows its own.
struct AgreedTensor {
  Signature signature;
  std::vector<std::int64_t> first_dimensions;
  // Ranks that had joined before it was agreed, and give neutral elements; in their order.
  std::vector<std::int32_t> absent{};

  friend bool operator==(const AgreedTensor&, const AgreedTensor&) = default;
};

// Entry `entry` of the plan now stands for this tensor.
struct BindDecision {
  std::int32_t entry = 0;
  std::uint32_t generation = 0;
  std::string name;
  AgreedTensor tensor;
};

// One tensor of a batch: an entry of the plan or, where the plan had no room, everything about it.
// Every rank knows who is absent where an entry was bound: all that had joined then.
struct BatchItem {
  static constexpr std::int32_t kByName = -1;
  static constexpr std::int32_t kByNameWithAbsent = -2;

  std::int32_t entry = -1;
  std::string name;
  AgreedTensor tensor;
};

// The bytes that this tensor moves: those of all ranks together where their rows may differ, 0
// where only each rank knows its own. Shapes were checked when they were submitted or decoded.
[[nodiscard]] base::Bytes payload_of(const AgreedTensor& tensor);

// The rows of a tensor that `rank` of `size` ranks gets from a reduce-scatter: its split, or an
// even share, where the first ranks get one more each until the remainder is used up.
// rows_before_rank(): how many rows all ranks before it get.
[[nodiscard]] std::int64_t rows_of_rank(const Signature& signature, std::int32_t rank,
                                        std::int32_t size);
[[nodiscard]] std::int64_t rows_before_rank(const Signature& signature, std::int32_t rank,
                                            std::int32_t size);
// The elements of one row, that is, of the shape without its first dimension. The shape was checked
// when it was submitted.
[[nodiscard]] base::Elements row_elements(const base::Shape& shape);

}  // namespace ronde::runtime
