// SPDX-License-Identifier: Apache-2.0
// What ranks say about tensors, compared and put into words: see signature.h.
#include "runtime/signature.h"

#include <bit>
#include <sstream>

namespace ronde::runtime {

namespace {

// Scale factors are compared as bits: a NaN agrees with itself, and 0.0 is not -0.0.
bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

std::string number(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

}  // namespace

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::kAllreduce:
      return "allreduce";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllgather:
      return "allgather";
    case Operation::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

bool operator==(const Signature& a, const Signature& b) {
  return a.operation == b.operation && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.device == b.device && same_bits(a.prescale, b.prescale) &&
         same_bits(a.postscale, b.postscale) && a.shape == b.shape;
}

Signature normalized(Signature signature) {
  if (signature.operation == Operation::kBarrier) {
    Signature plain;
    plain.operation = Operation::kBarrier;
    return plain;
  }
  if (signature.operation != Operation::kAllreduce) {
    signature.op = base::ReduceOp::kAverage;
    signature.prescale = 1.0;
    signature.postscale = 1.0;
  }
  if (signature.operation != Operation::kBroadcast) signature.root = 0;
  return signature;
}

bool agree(const Signature& a, const Signature& b) {
  if (a.operation != Operation::kAllgather || b.operation != Operation::kAllgather) return a == b;
  if (a.shape.empty() || b.shape.empty()) return a == b;
  Signature same_rows = b;
  same_rows.shape[0] = a.shape[0];
  return a == same_rows;
}

std::string describe(const Signature& signature) {
  std::string text(name_of(signature.operation));
  if (signature.operation == Operation::kBarrier) return text;
  text += '(';
  if (signature.operation == Operation::kAllreduce)
    text += std::string(name_of(signature.op)) + ", ";
  if (signature.operation == Operation::kBroadcast) {
    text += "root " + std::to_string(signature.root) + ", ";
  }
  text += std::string(base::name_of(signature.dtype)) + ", " + base::to_string(signature.shape);
  if (signature.prescale != 1.0) text += ", prescale " + number(signature.prescale);
  if (signature.postscale != 1.0) text += ", postscale " + number(signature.postscale);
  if (signature.device >= 0) text += ", device " + std::to_string(signature.device);
  return text + ')';
}

base::Bytes payload_of(const AgreedTensor& tensor) {
  const Signature& signature = tensor.signature;
  if (signature.operation == Operation::kBarrier) return base::Bytes(0);
  base::Shape shape = signature.shape;
  if (signature.operation == Operation::kAllgather && !shape.empty()) {
    base::Elements rows;
    for (const std::int64_t dimension : tensor.first_dimensions) {
      rows += base::Elements(dimension);
    }
    shape[0] = rows.value();
  }
  return base::bytes_of(base::elements_of(shape).value(), signature.dtype).value();
}

std::string rank_list(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string ranks_phrase(const std::vector<std::int32_t>& ranks) {
  if (ranks.empty()) return "no rank";
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks);
}

}  // namespace ronde::runtime
