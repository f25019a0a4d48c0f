// SPDX-License-Identifier: Apache-2.0
// What a rank says about a tensor, what the ranks must agree on, and how the plan names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/numbers.h"
#include "base/tensor.h"

namespace ronde::runtime {

enum class Operation : std::uint8_t {
  kAllreduce = 0,
  kBroadcast = 1,
  kAllgather = 2,
  kBarrier = 3,
  kReduceScatter = 4,
  kAllToAll = 5,
  // A barrier among streams of devices: one of hosts has nothing that could say where it is.
  kDeviceBarrier = 6,
};

[[nodiscard]] std::string_view name_of(Operation operation);

// One tensor of a group.
struct GroupMember {
  std::string name;
  base::Shape shape;

  friend bool operator==(const GroupMember&, const GroupMember&) = default;
};

// Everything about a tensor but its name and its memory. Fields that an operation does not use keep
// their defaults, so that plain equality compares what matters (see normalized).
struct Signature {
  Operation operation = Operation::kAllreduce;
  base::DType dtype = base::DType::kF32;
  base::ReduceOp op = base::ReduceOp::kAverage;
  std::int32_t root = 0;
  // Where its memory is: -1 is the host's. The devices of ranks have numbers of their own, so only
  // whether it is on one is compared.
  std::int32_t device = -1;
  std::int32_t priority = 0;  // not compared: the coordinator follows its own
  // Allreduce: the tensor lies on the board and can be reduced in place. Not compared: ranks may
  // differ in it, and then it is not (agree_on).
  bool on_board = false;
  double prescale = 1.0;
  double postscale = 1.0;
  base::Compression compression = base::Compression::kNone;
  base::Shape shape;  // of a group: one dimension, the elements of all members
  // Reduce-scatter: the rows of each rank; empty: as even as can be (rows_of_rank).
  std::vector<std::int64_t> splits;
  std::vector<GroupMember> members;  // of a group, in the order of the call; else empty

  friend bool operator==(const Signature& a, const Signature& b);
};

// True when the operation cuts or joins tensors along their first dimension.
[[nodiscard]] bool has_rows(Operation operation);
// True when there is nothing but a name.
[[nodiscard]] bool is_barrier(Operation operation);
// True when it is the devices' business and not the data plane's.
[[nodiscard]] bool on_device(const Signature& signature);
// True when the operation computes: op, scale factors and compression mean something.
[[nodiscard]] bool reduces(Operation operation);

// The same signature with the fields its operation does not use at their defaults.
[[nodiscard]] Signature normalized(Signature signature);

// True when two ranks may say these about one tensor: equal, but for the first dimension of an
// allgather or an all-to-all.
[[nodiscard]] bool agree(const Signature& a, const Signature& b);

// "allreduce(sum, f32, [128, 784])". The rows of an all-to-all are nobody else's business: "*".
[[nodiscard]] std::string describe(const Signature& signature);

// A tensor that all ranks agreed on. `first_dimensions` has one number per rank for an allgather
// and is empty otherwise. The rows of an all-to-all are not agreed on: the first dimension is 0
// here, and each rank knows its own.
struct AgreedTensor {
  Signature signature;
  std::vector<std::int64_t> first_dimensions;

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
struct BatchItem {
  std::int32_t entry = -1;
  std::string name;
  AgreedTensor tensor;
};

// The bytes that this tensor moves (for an allgather, of all ranks together; 0 for an all-to-all,
// of which only the ranks know). Shapes were checked when they were submitted or decoded.
[[nodiscard]] base::Bytes payload_of(const AgreedTensor& tensor);

// The rows of a tensor that `rank` of `size` ranks gets from a reduce-scatter: its split, or an
// even share, of which the first ranks get one more when there is a rest. The second function: how
// many rows the ranks before it get.
[[nodiscard]] std::int64_t rows_of_rank(const Signature& signature, std::int32_t rank,
                                        std::int32_t size);
[[nodiscard]] std::int64_t rows_before_rank(const Signature& signature, std::int32_t rank,
                                            std::int32_t size);
// The elements of one row: of a shape without its first dimension. Checked when it was submitted.
[[nodiscard]] base::Elements row_elements(const base::Shape& shape);

// "1 tensor", "3 tensors".
[[nodiscard]] std::string tensors_text(std::size_t count);
// "0", "0-2", "0, 2-3": ranks in ascending order.
[[nodiscard]] std::string rank_list(const std::vector<std::int32_t>& ranks);
// "rank 1" or "ranks 0-2".
[[nodiscard]] std::string ranks_phrase(const std::vector<std::int32_t>& ranks);
// "1.25 s": three digits that count.
[[nodiscard]] std::string seconds_text(base::Nanoseconds span);

}  // namespace ronde::runtime
