// SPDX-License-Identifier: Apache-2.0
// Tables of MPI's constants. They are made at run time: in Open MPI a handle is an address.
#include "bindings/mpi/fitting.h"

#include <array>
#include <type_traits>

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::mpi_allreduce {

namespace {

enum class Kind : std::uint8_t { kInteger, kBytes, kFloat };

struct Type {
  MPI_Datatype handle;
  ronde_dtype dtype;
  Kind kind;
  std::int64_t bytes;
  const char* name;
};

struct Operation {
  MPI_Op handle;
  ronde_op op;
  bool bitwise;
  const char* name;
};

template <typename T>
Type integer(MPI_Datatype handle) {
  constexpr bool kSigned = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 1:
      return {handle, kSigned ? RONDE_I8 : RONDE_U8, Kind::kInteger, 1, kSigned ? "i8" : "u8"};
    case 2:
      return {handle, kSigned ? RONDE_I16 : RONDE_U16, Kind::kInteger, 2, kSigned ? "i16" : "u16"};
    case 4:
      return {handle, kSigned ? RONDE_I32 : RONDE_U32, Kind::kInteger, 4, kSigned ? "i32" : "u32"};
    default:
      return {handle, kSigned ? RONDE_I64 : RONDE_U64, Kind::kInteger, 8, kSigned ? "i64" : "u64"};
  }
}

using Types = std::array<Type, 24>;

const Types& types() {
  static const Types kTypes{{
      {MPI_FLOAT, RONDE_F32, Kind::kFloat, 4, "f32"},
      {MPI_DOUBLE, RONDE_F64, Kind::kFloat, 8, "f64"},
      integer<int>(MPI_INT),
      integer<long>(MPI_LONG),            // NOLINT(google-runtime-int): so MPI calls it
      integer<long long>(MPI_LONG_LONG),  // NOLINT(google-runtime-int)
      integer<unsigned>(MPI_UNSIGNED),
      integer<unsigned long>(MPI_UNSIGNED_LONG),            // NOLINT(google-runtime-int)
      integer<unsigned long long>(MPI_UNSIGNED_LONG_LONG),  // NOLINT(google-runtime-int)
      integer<short>(MPI_SHORT),                            // NOLINT(google-runtime-int)
      integer<unsigned short>(MPI_UNSIGNED_SHORT),          // NOLINT(google-runtime-int)
      integer<signed char>(MPI_SIGNED_CHAR),
      integer<unsigned char>(MPI_UNSIGNED_CHAR),
      integer<std::int8_t>(MPI_INT8_T),
      integer<std::int16_t>(MPI_INT16_T),
      integer<std::int32_t>(MPI_INT32_T),
      integer<std::int64_t>(MPI_INT64_T),
      integer<std::uint8_t>(MPI_UINT8_T),
      integer<std::uint16_t>(MPI_UINT16_T),
      integer<std::uint32_t>(MPI_UINT32_T),
      integer<std::uint64_t>(MPI_UINT64_T),
      integer<MPI_Aint>(MPI_AINT),
      integer<MPI_Offset>(MPI_OFFSET),
      integer<MPI_Count>(MPI_COUNT),
      {MPI_BYTE, RONDE_U8, Kind::kBytes, 1, "u8"},
  }};
  return kTypes;
}

using Operations = std::array<Operation, 7>;

const Operations& operations() {
  static const Operations kOperations{{{MPI_SUM, RONDE_SUM, false, "sum"},
                                       {MPI_MAX, RONDE_MAX, false, "max"},
                                       {MPI_MIN, RONDE_MIN, false, "min"},
                                       {MPI_PROD, RONDE_PRODUCT, false, "product"},
                                       {MPI_BAND, RONDE_BAND, true, "bitwise and"},
                                       {MPI_BOR, RONDE_BOR, true, "bitwise or"},
                                       {MPI_BXOR, RONDE_BXOR, true, "bitwise xor"}}};
  return kOperations;
}

// In bits of a form: the kind of call above, and what comes beside a count.
constexpr int kLowShift = 32;
constexpr int kHighShift = 40;
constexpr std::uint64_t kMostOfHigh = 0xffff;
constexpr std::uint64_t kFormReduction = std::uint64_t{1} << 56;
constexpr std::uint64_t kFormReductionOfMpi = std::uint64_t{2} << 56;
constexpr std::uint64_t kFormBroadcast = std::uint64_t{3} << 56;
constexpr std::uint64_t kFormBarrier = std::uint64_t{4} << 56;

template <typename Table, typename Fits>
const typename Table::value_type* row_of(const Table& table, const Fits& fits) {
  for (const auto& row : table) {
    if (fits(row)) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<Reduction> reduction_of(MPI_Datatype datatype, MPI_Op op) {
  const auto* type = row_of(types(), [&](const Type& row) { return row.handle == datatype; });
  const auto* operation =
      row_of(operations(), [&](const Operation& row) { return row.handle == op; });
  if (type == nullptr || operation == nullptr) return std::nullopt;
  // MPI has arithmetic for numbers only, and bits for integers and bytes.
  if (type->kind == (operation->bitwise ? Kind::kFloat : Kind::kBytes)) return std::nullopt;
  return Reduction{type->dtype, operation->op, type->bytes};
}

std::string name_of(const Reduction& reduction, int count) {
  const auto* type = row_of(types(), [&](const Type& row) { return row.dtype == reduction.dtype; });
  const auto* operation =
      row_of(operations(), [&](const Operation& row) { return row.op == reduction.op; });
  return std::to_string(count) + " " + type->name + " " + operation->name;
}

std::int64_t bytes_of_basic(MPI_Datatype datatype) {
  const auto* type = row_of(types(), [&](const Type& row) { return row.handle == datatype; });
  return type == nullptr ? 0 : type->bytes;
}

std::uint64_t form_of(const Reduction& reduction, int count) {
  return kFormReduction | static_cast<std::uint32_t>(count) |
         static_cast<std::uint64_t>(reduction.dtype) << kLowShift |
         static_cast<std::uint64_t>(reduction.op) << kHighShift;
}

std::uint64_t form_of_mpi(int count, int element_bytes) {
  return kFormReductionOfMpi | static_cast<std::uint32_t>(count) |
         (static_cast<std::uint64_t>(element_bytes) & kMostOfHigh) << kHighShift;
}

std::uint64_t form_of_broadcast(std::int64_t bytes, int root) {
  constexpr std::uint64_t kMostOfLow = (std::uint64_t{1} << kHighShift) - 1;
  return kFormBroadcast | (static_cast<std::uint64_t>(bytes) & kMostOfLow) |
         (static_cast<std::uint64_t>(root) & kMostOfHigh) << kHighShift;
}

std::uint64_t form_of_barrier() { return kFormBarrier; }

}  // namespace ronde::mpi_allreduce
// NOLINTEND(bugprone-casting-through-void)
