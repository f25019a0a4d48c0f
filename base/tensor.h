// SPDX-License-Identifier: Apache-2.0
// A tensor as the runtime sees it: a shape, a dtype and, locally, two pointers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "base/status.h"

namespace ronde::base {

using Shape = std::vector<std::int64_t>;

// "[128, 784]"; a scalar is "[]".
[[nodiscard]] std::string to_string(const Shape& shape);

// The product of the dimensions; an error when one is negative or the product does not fit.
[[nodiscard]] Result<Elements> elements_of(const Shape& shape);

// elements * size of dtype; an error when it does not fit 63 bits.
[[nodiscard]] Result<Bytes> bytes_of(Elements elements, DType dtype);

// Memory of the user, dense and in row-major order. Thread safety: a view, which owns nothing.
struct TensorView {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;  // equal to input when in place
  Elements elements;
  DType dtype = DType::kF32;

  [[nodiscard]] Bytes bytes() const { return Bytes(elements.value() * size_of(dtype)); }
};

}  // namespace ronde::base
