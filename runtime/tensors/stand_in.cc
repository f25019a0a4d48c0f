// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensors/stand_in.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"

namespace ronde::runtime {

namespace {

using base::DType;
using base::ReduceOp;

template <typename T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// The neutral element of a floating type, by the bits of -0, 1 and infinity.
std::uint64_t neutral_of(ReduceOp op, std::uint64_t sign, std::uint64_t one,
                         std::uint64_t infinity) {
  switch (op) {
    case ReduceOp::kProduct:
      return one;
    case ReduceOp::kMin:
      return infinity;
    case ReduceOp::kMax:
      return sign | infinity;
    default:
      return sign;
  }
}

template <typename T>
std::uint64_t neutral_integer(ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return 1;
    case ReduceOp::kMin:
      return bits_of(std::numeric_limits<T>::max());
    case ReduceOp::kMax:
      return bits_of(std::numeric_limits<T>::min());
    case ReduceOp::kBitAnd:
      return ~std::uint64_t{0};
    default:
      return 0;
  }
}

std::uint64_t neutral_bits(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kU8:
      return neutral_integer<std::uint8_t>(op);
    case DType::kI8:
      return neutral_integer<std::int8_t>(op);
    case DType::kU16:
      return neutral_integer<std::uint16_t>(op);
    case DType::kI16:
      return neutral_integer<std::int16_t>(op);
    case DType::kU32:
      return neutral_integer<std::uint32_t>(op);
    case DType::kI32:
      return neutral_integer<std::int32_t>(op);
    case DType::kU64:
      return neutral_integer<std::uint64_t>(op);
    case DType::kI64:
      return neutral_integer<std::int64_t>(op);
    case DType::kF16:
      return neutral_of(op, 0x8000, 0x3C00, 0x7C00);
    case DType::kBf16:
      return neutral_of(op, 0x8000, 0x3F80, 0x7F80);
    case DType::kF32:
      return neutral_of(op, bits_of(-0.0F), bits_of(1.0F),
                        bits_of(std::numeric_limits<float>::infinity()));
    case DType::kF64:
      return neutral_of(op, bits_of(-0.0), bits_of(1.0),
                        bits_of(std::numeric_limits<double>::infinity()));
    case DType::kBool:
      return op == ReduceOp::kMin || op == ReduceOp::kBitAnd ? 1 : 0;
  }
  return 0;
}

void fill(std::vector<std::byte>& memory, DType dtype, ReduceOp op) {
  const std::uint64_t bits = neutral_bits(dtype, op);
  const auto size = static_cast<std::size_t>(base::size_of(dtype));
  for (std::size_t at = 0; at + size <= memory.size(); at += size) {
    std::memcpy(memory.data() + at, &bits, size);
  }
}

// What this rank says of it: it has no rows where each rank has its own number.
Signature own_signature(const Signature& agreed) {
  Signature mine = agreed;
  if (row(mine.operation).makes_result() && !mine.shape.empty()) mine.shape[0] = 0;
  return mine;
}

// The views of all members, or the one, in place in `memory`, which is made large enough.
std::vector<base::TensorView> views_of(const Signature& is, std::vector<std::byte>& memory) {
  std::vector<base::Elements> lengths;
  lengths.reserve(is.members.size() + 1);
  for (const GroupMember& member : is.members) {
    lengths.push_back(base::elements_of(member.shape).value());
  }
  if (is.members.empty()) lengths.push_back(base::elements_of(is.shape).value());
  std::int64_t bytes = 0;
  std::vector<base::TensorView> views;
  for (const base::Elements length : lengths) {
    views.push_back({nullptr, nullptr, length, is.dtype});
    bytes += views.back().bytes().value();
  }
  memory.resize(base::narrow<std::size_t>(bytes));
  std::byte* next = memory.data();
  for (base::TensorView& view : views) {
    view.input = view.output = next;
    next += view.bytes().value();
  }
  return views;
}

}  // namespace

LocalTensorPtr stand_in_for(const std::string& name, const AgreedTensor& agreed, std::int32_t rank,
                            std::int32_t size) {
  auto tensor = std::make_shared<LocalTensor>();
  tensor->name = name;
  tensor->stands_in = true;
  tensor->in_batch = true;
  tensor->work = std::make_shared<Work>();
  tensor->work->name = name;
  tensor->signature = own_signature(agreed.signature);
  const Signature& is = tensor->signature;
  const base::OperationRow& what = row(is.operation);
  if (what.is_barrier()) return tensor;
  tensor->views = views_of(is, tensor->own_memory);
  if (what.reduces) fill(tensor->own_memory, is.dtype, is.op);
  if (is.weighted) tensor->weights.assign(tensor->views.size(), 0.0);
  if (what.has_own_rows()) tensor->splits.assign(base::narrow<std::size_t>(size), 0);
  base::TensorView& first = tensor->views.front();
  if (what.makes_result()) first.output = nullptr;
  if (what.out == base::Extent::kBlock && first.elements.value() > 0) {
    first.output +=
        rows_before_rank(is, rank, size) * row_elements(is.shape).value() * base::size_of(is.dtype);
  }
  return tensor;
}

}  // namespace ronde::runtime
