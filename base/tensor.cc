// SPDX-License-Identifier: Apache-2.0
// The checked products behind elements_of() and bytes_of(), whose errors name the shape.
#include "base/tensor.h"

namespace ronde::base {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Result<Elements> elements_of(const Shape& shape) {
  // A zero anywhere makes the product zero, however large the rest is.
  bool has_zero = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return Status::error(Code::kInvalidArgument,
                           "shape " + to_string(shape) + " has a negative dimension");
    }
    has_zero = has_zero || dimension == 0;
  }
  if (has_zero) return Elements(0);
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) {
    const auto next = checked_product(product, dimension);
    if (!next) {
      return Status::error(Code::kInvalidArgument,
                           "shape " + to_string(shape) + " has more than 2^63 - 1 elements");
    }
    product = *next;
  }
  return Elements(product);
}

Result<Bytes> bytes_of(Elements elements, DType dtype) {
  const auto bytes = checked_product(elements.value(), size_of(dtype));
  if (!bytes) {
    return Status::error(Code::kInvalidArgument, std::to_string(elements.value()) +
                                                     " elements of " + std::string(name_of(dtype)) +
                                                     " are more than 2^63 - 1 bytes");
  }
  return Bytes(*bytes);
}

}  // namespace ronde::base
