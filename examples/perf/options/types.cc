// SPDX-License-Identifier: Apache-2.0
// The tables of names, and the sizes that follow from an operation.
#include "examples/perf/options/types.h"

#include <algorithm>
#include <iterator>

namespace ronde::perf {

namespace {

constexpr Calls kCalls[] = {
    {ronde_allreduce_async, ronde_allreduce, nullptr},
    {ronde_broadcast_async, ronde_broadcast, nullptr},
    {ronde_allgather_async, nullptr, ronde_allgather},
    {ronde_barrier_async, ronde_barrier, nullptr},
    {ronde_reduce_scatter_async, ronde_reduce_scatter, nullptr},
    {ronde_all_to_all_async, nullptr, ronde_all_to_all},
};

// The gradients of a model are allreduced.
std::int32_t index_of(Operation operation) {
  return static_cast<std::int32_t>(operation == Operation::kModel ? Operation::kAllreduce
                                                                  : operation);
}

}  // namespace

const ronde_operation& row_of(Operation operation) {
  return *ronde_operation_info(index_of(operation));
}

const Calls& calls_of(Operation operation) { return kCalls[index_of(operation)]; }

std::string_view name_of(Operation operation) {
  return operation == Operation::kModel ? "model" : row_of(operation).name;
}

std::optional<Operation> operation_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kCalls); ++i) {
    const auto operation = static_cast<Operation>(i);
    if (name_of(operation) == name) return operation;
  }
  return std::nullopt;
}

std::string operation_names() {
  std::string names;
  for (std::size_t i = 0; i < std::size(kCalls); ++i) {
    names.append(i == 0 ? "" : " ").append(name_of(static_cast<Operation>(i)));
  }
  return names;
}

const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> kDTypes{
      {"int8", "i8", RONDE_I8, Kind::kSigned, 1, 0},
      {"uint8", "u8", RONDE_U8, Kind::kUnsigned, 1, 0},
      {"int16", "i16", RONDE_I16, Kind::kSigned, 2, 0},
      {"uint16", "u16", RONDE_U16, Kind::kUnsigned, 2, 0},
      {"int32", "i32", RONDE_I32, Kind::kSigned, 4, 0},
      {"uint32", "u32", RONDE_U32, Kind::kUnsigned, 4, 0},
      {"int64", "i64", RONDE_I64, Kind::kSigned, 8, 0},
      {"uint64", "u64", RONDE_U64, Kind::kUnsigned, 8, 0},
      {"half", "f16", RONDE_F16, Kind::kFloat, 2, 5},
      {"bfloat16", "bf16", RONDE_BF16, Kind::kFloat, 2, 8},
      {"float", "f32", RONDE_F32, Kind::kFloat, 4, 0},
      {"double", "f64", RONDE_F64, Kind::kFloat, 8, 0},
      {"bool", "bool", RONDE_BOOL, Kind::kBool, 1, 0},
  };
  return kDTypes;
}

const std::vector<Op>& all_ops() {
  static const std::vector<Op> kOps{
      {"sum", Reduction::kSum, RONDE_SUM},         {"prod", Reduction::kProduct, RONDE_PRODUCT},
      {"min", Reduction::kMin, RONDE_MIN},         {"max", Reduction::kMax, RONDE_MAX},
      {"avg", Reduction::kAverage, RONDE_AVERAGE}, {"band", Reduction::kBitAnd, RONDE_BAND},
      {"bor", Reduction::kBitOr, RONDE_BOR},       {"bxor", Reduction::kBitXor, RONDE_BXOR},
  };
  return kOps;
}

const Op& no_op() {
  static const Op kNoOp{"none", Reduction::kNone, RONDE_AVERAGE};
  return kNoOp;
}

bool valid(const DType& dtype, const Op& op) {
  switch (op.reduction) {
    case Reduction::kNone:
      return true;
    case Reduction::kMin:
    case Reduction::kMax:
      return true;
    case Reduction::kSum:
    case Reduction::kProduct:
      return dtype.kind != Kind::kBool;
    case Reduction::kAverage:
      return dtype.kind == Kind::kFloat || (dtype.kind != Kind::kBool && dtype.size >= 4);
    case Reduction::kBitAnd:
    case Reduction::kBitOr:
    case Reduction::kBitXor:
      return dtype.kind != Kind::kFloat;
  }
  return false;
}

bool valid_on_gpu(const DType& dtype, const Op& op) {
  const bool bitwise = op.reduction == Reduction::kBitAnd || op.reduction == Reduction::kBitOr ||
                       op.reduction == Reduction::kBitXor;
  const bool short_integer = dtype.kind != Kind::kFloat && dtype.size == 2;
  return valid(dtype, op) && !bitwise && !short_integer && dtype.kind != Kind::kBool;
}

std::size_t Case::elements_of(std::int32_t extent) const {
  return extent == RONDE_BLOCKS ? count * static_cast<std::size_t>(ranks) : count;
}

std::size_t Case::bytes() const {
  return std::max(input_elements(), output_elements()) * dtype->size;
}

Case make_case(Operation operation, const DType& dtype, const Op& op, std::size_t bytes, int root,
               int rank, int ranks) {
  Case shape;
  shape.operation = operation;
  shape.dtype = &dtype;
  shape.op = row_of(operation).reduces != 0 ? &op : &no_op();
  shape.root = root;
  shape.rank = rank;
  shape.ranks = ranks;
  if (shape.moves_nothing()) return shape;
  const std::size_t blocks = shape.is_whole() ? 1 : static_cast<std::size_t>(ranks);
  shape.count = std::max<std::size_t>(1, bytes / (dtype.size * blocks));
  return shape;
}

double bus_factor(Operation operation, int ranks) {
  const ronde_operation& row = row_of(operation);
  const double n = ranks;
  const double share = ranks == 1 ? 1.0 : (n - 1.0) / n;
  if (row.input != RONDE_TENSOR) return row.input == RONDE_NOTHING ? 1.0 : share;
  // What one rank sends to all others passes each link once.
  if (row.reduces == 0) return 1.0;
  return ranks == 1 ? 1.0 : 2.0 * share;
}

}  // namespace ronde::perf
