// SPDX-License-Identifier: Apache-2.0
// A number is not finite where all bits of its exponent are set.
#include "runtime/tensors/finite_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace ronde::runtime {

namespace {

struct Found {
  std::int64_t element = -1;  // -1: all are finite
  const char* what = "";
};

// Looks at a block at a time, without a branch for each element, so that it takes as long as
// reading the memory does.
template <typename Bits>
Found first_in(const base::TensorView& view, Bits exponent) {
  constexpr std::int64_t kBlock = 4096;
  const auto bits_of = [&](std::int64_t element) {
    Bits bits;
    std::memcpy(&bits, view.input + element * std::int64_t{sizeof bits}, sizeof bits);
    return bits;
  };
  const auto is_wrong = [&](Bits bits) { return (bits & exponent) == exponent; };
  const std::int64_t all = view.elements.value();
  for (std::int64_t first = 0; first < all; first += kBlock) {
    const std::int64_t end = std::min(all, first + kBlock);
    unsigned wrong = 0;
    for (std::int64_t i = first; i < end; ++i) wrong |= unsigned{is_wrong(bits_of(i))};
    if (wrong == 0) continue;
    while (!is_wrong(bits_of(first))) ++first;
    const Bits bits = bits_of(first);
    const auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof bits - 1));
    const bool is_number = (bits & static_cast<Bits>(~(exponent | sign))) == 0;
    return {first, !is_number ? "nan" : (bits & sign) != 0 ? "-inf" : "inf"};
  }
  return {};
}

Found first_in(const base::TensorView& view) {
  switch (view.dtype) {
    case base::DType::kF16:
      return first_in<std::uint16_t>(view, 0x7C00);
    case base::DType::kBf16:
      return first_in<std::uint16_t>(view, 0x7F80);
    case base::DType::kF32:
      return first_in<std::uint32_t>(view, 0x7F800000);
    case base::DType::kF64:
      return first_in<std::uint64_t>(view, 0x7FF0000000000000);
    default:
      return {};
  }
}

}  // namespace

std::string not_finite_in(const LocalTensor& tensor) {
  const Signature& is = tensor.signature;
  if (!row(is.operation).reduces || on_device(is)) return "";
  for (std::size_t i = 0; i < tensor.views.size(); ++i) {
    const Found found = first_in(tensor.views[i]);
    if (found.element < 0) continue;
    return std::string(found.what) + " at element " + std::to_string(found.element) + " of " +
           std::to_string(tensor.views[i].elements.value()) +
           (is.members.empty() ? "" : " of '" + is.members[i].name + "'");
  }
  return "";
}

}  // namespace ronde::runtime
