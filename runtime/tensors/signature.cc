// SPDX-License-Identifier: Apache-2.0
// Comparison, arithmetic and texts of signatures.
#include "runtime/tensors/signature.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "base/text.h"

namespace ronde::runtime {

namespace {

// Scale factors are compared as bits: a NaN agrees with itself, and 0.0 is not -0.0.
bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

std::string number(double value) { return base::number_text(value, 17); }

std::string shape_text(const Signature& signature) {
  if (!signature.members.empty()) {
    return base::tensors_text(signature.members.size()) + ", " +
           std::to_string(signature.shape.front()) + " elements";
  }
  if (!row(signature.operation).has_own_rows() || signature.shape.empty()) {
    return base::to_string(signature.shape);
  }
  std::string text = "[*";
  for (std::size_t i = 1; i < signature.shape.size(); ++i) {
    text += ", " + std::to_string(signature.shape[i]);
  }
  return text + "]";
}

}  // namespace

bool operator==(const Signature& a, const Signature& b) {
  return a.operation == b.operation && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         (a.device < 0) == (b.device < 0) && same_bits(a.prescale, b.prescale) &&
         same_bits(a.postscale, b.postscale) && a.compression == b.compression &&
         a.weighted == b.weighted && a.shape == b.shape && a.splits == b.splits &&
         a.members == b.members;
}

bool on_device(const Signature& signature) {
  return signature.device >= 0 || row(signature.operation).on_streams;
}

void normalize(Signature& signature) {
  const base::OperationRow& is = row(signature.operation);
  if (is.is_barrier()) {
    Signature plain;
    plain.operation = signature.operation;
    if (is.on_streams) plain.device = signature.device;
    signature = std::move(plain);
    return;
  }
  if (!is.reduces) {
    signature.op = base::ReduceOp::kAverage;
    signature.weighted = false;
    signature.prescale = 1.0;
    signature.postscale = 1.0;
    signature.compression = base::Compression::kNone;
  }
  if (!is.in_place) signature.on_board = false;
  if (is.out != base::Extent::kBlock) signature.splits.clear();
  if (!is.has_root) signature.root = 0;
}

bool agree(const Signature& a, const Signature& b) {
  if (!row(a.operation).makes_result() || a.shape.empty() || b.shape.empty()) return a == b;
  Signature same_rows = b;
  same_rows.shape[0] = a.shape[0];
  return a == same_rows;
}

std::string describe(const Signature& signature) {
  const base::OperationRow& is = row(signature.operation);
  std::string text(is.name);
  if (is.is_barrier()) return text;
  if (!signature.members.empty()) text = "grouped " + text;
  text += '(';
  if (is.reduces) {
    text += std::string(name_of(signature.op)) + (signature.weighted ? " by weights, " : ", ");
  }
  if (is.has_root) text += "root " + std::to_string(signature.root) + ", ";
  text += std::string(base::name_of(signature.dtype)) + ", " + shape_text(signature);
  if (!signature.splits.empty()) text += ", splits " + base::to_string(signature.splits);
  if (signature.prescale != 1.0) text += ", prescale " + number(signature.prescale);
  if (signature.postscale != 1.0) text += ", postscale " + number(signature.postscale);
  if (signature.compression != base::Compression::kNone) {
    text += ", compression " + std::string(base::name_of(signature.compression));
  }
  // Each rank numbers its own devices, so ranks cannot disagree about the number.
  if (signature.device >= 0) text += ", on a device";
  return text + ')';
}

base::Bytes payload_of(const AgreedTensor& tensor) {
  const Signature& signature = tensor.signature;
  if (row(signature.operation).is_barrier()) return base::Bytes(0);
  base::Shape shape = signature.shape;
  if (!tensor.first_dimensions.empty() && !shape.empty()) {
    base::Elements rows;
    for (const std::int64_t dimension : tensor.first_dimensions) {
      rows += base::Elements(dimension);
    }
    shape[0] = rows.value();
  }
  return base::bytes_of(base::elements_of(shape).value(), signature.dtype).value();
}

std::int64_t rows_of_rank(const Signature& signature, std::int32_t rank, std::int32_t size) {
  if (!signature.splits.empty()) return signature.splits.at(base::narrow<std::size_t>(rank));
  const std::int64_t rows = signature.shape.front();
  return rows / size + (rank < rows % size ? 1 : 0);
}

std::int64_t rows_before_rank(const Signature& signature, std::int32_t rank, std::int32_t size) {
  if (signature.splits.empty()) {
    const std::int64_t rows = signature.shape.front();
    return rows / size * rank + std::min<std::int64_t>(rank, rows % size);
  }
  std::int64_t before = 0;
  for (std::int32_t r = 0; r < rank; ++r) before += rows_of_rank(signature, r, size);
  return before;
}

base::Elements row_elements(const base::Shape& shape) {
  base::Shape row = shape;
  row.front() = 1;
  return base::elements_of(row).value();
}

}  // namespace ronde::runtime
