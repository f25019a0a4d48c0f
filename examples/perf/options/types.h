// SPDX-License-Identifier: Apache-2.0
// Operations, dtypes and reductions: the names that users of nccl-tests know, and the numbers that
// the C ABI gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ronde/ronde.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ronde::perf {

// By their rows in the library's table (ronde_operation_info).
enum class Operation {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kBarrier,
  kReduceScatter,
  kAllToAll,
  kModel,  // a list of gradients, averaged as a trainer would
};

[[nodiscard]] const ronde_operation& row_of(Operation operation);

using WorkCall = ronde_status(ronde_engine*, const ronde_request*, ronde_work**, ronde_error**);
using PlainCall = ronde_status(ronde_engine*, const ronde_request*, ronde_error**);
// How to call it; of the two that wait it has the one that fits its result.
struct Calls {
  WorkCall* asynchronous;
  PlainCall* waiting;
  WorkCall* waiting_with_result;
};
[[nodiscard]] const Calls& calls_of(Operation operation);

[[nodiscard]] std::string_view name_of(Operation operation);
// Finds any but kModel, which --model chooses.
[[nodiscard]] std::optional<Operation> operation_named(std::string_view name);
[[nodiscard]] std::string operation_names();

enum class Kind { kSigned, kUnsigned, kFloat, kBool };

struct DType {
  std::string_view name;   // as nccl-tests writes it
  std::string_view alias;  // as Ronde writes it
  ronde_dtype code;
  Kind kind;
  std::size_t size;
  int exponent_bits;  // for 16-bit floating types, which C++20 lacks; otherwise 0
};

[[nodiscard]] const std::vector<DType>& all_dtypes();

enum class Reduction { kSum, kProduct, kMin, kMax, kAverage, kBitAnd, kBitOr, kBitXor, kNone };

struct Op {
  std::string_view name;
  Reduction reduction;
  std::int32_t code;  // a ronde_op
};

[[nodiscard]] const std::vector<Op>& all_ops();
// The op of operations that only move values.
[[nodiscard]] const Op& no_op();
// bool has neither sums nor products, floating types have no bits to combine.
[[nodiscard]] bool valid(const DType& dtype, const Op& op);
// Whether a GPU can reduce it too: nothing bitwise, and neither bool nor 16-bit integers.
[[nodiscard]] bool valid_on_gpu(const DType& dtype, const Op& op);

// One thing to measure: the shape of a call. `count` is what nccl-tests prints: the elements of
// the vector of an allreduce or broadcast, and of one rank's block in the other operations.
struct Case {
  Operation operation = Operation::kAllreduce;
  const DType* dtype = nullptr;
  const Op* op = nullptr;
  std::size_t count = 0;
  bool in_place = false;
  int root = 0;
  int rank = 0;
  int ranks = 1;

  // The input and the result of this rank.
  [[nodiscard]] std::size_t input_elements() const { return elements_of(row().input); }
  [[nodiscard]] std::size_t output_elements() const { return elements_of(row().output); }
  [[nodiscard]] const ronde_operation& row() const { return row_of(operation); }
  [[nodiscard]] bool moves_nothing() const { return row().input == RONDE_NOTHING; }
  // Every rank has a whole tensor, before and after.
  [[nodiscard]] bool is_whole() const { return row().input == RONDE_TENSOR; }
  // The result has memory of its own.
  [[nodiscard]] bool is_owned() const { return row().output == RONDE_BLOCKS; }
  // The size that tables show: the longer of input and output.
  [[nodiscard]] std::size_t bytes() const;

 private:
  [[nodiscard]] std::size_t elements_of(std::int32_t extent) const;
};

// Makes the case that fits `bytes` best, with at least one element for each block.
[[nodiscard]] Case make_case(Operation operation, const DType& dtype, const Op& op,
                             std::size_t bytes, int root, int rank, int ranks);

// busbw = algbw times this: what a link carries in the best algorithm, whatever the ranks' number.
[[nodiscard]] double bus_factor(Operation operation, int ranks);

}  // namespace ronde::perf
