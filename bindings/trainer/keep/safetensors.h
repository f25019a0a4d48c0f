// SPDX-License-Identifier: Apache-2.0
// Files of tensors in the safetensors format, which Python and others read: the length of a header
// (8 bytes, little-endian), the header (JSON: type, shape and place of each tensor by name), and
// the values, dense and row-major.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/shape.h"

namespace ronde::trainer {

// Bytes that are provably corrupt.
class Damaged : public DataError {
 public:
  using DataError::DataError;
};

// A tensor of f32 where it lies among the bytes of a file, at any address.
struct TensorInBytes {
  Shape shape;
  std::string_view bytes;
};

using TensorsInBytes = std::map<std::string, TensorInBytes>;

// The bytes of a file with these tensors, in their order, and with `metadata` (safetensors'
// "__metadata__"). They lie in `memory` where that is large enough: fresh memory costs more than
// the copy. Throws TrainerError where two have the same name or a shape does not fit.
[[nodiscard]] std::string to_safetensors(std::span<const StateTensor> tensors,
                                         const std::map<std::string, std::string>& metadata = {},
                                         std::string memory = {});

// Parses such bytes, from any (untrusted) writer; only F32 is supported. Throws Damaged, in one
// line that begins with `file`, for a header that is longer than the file, invalid JSON or JSON
// with too many levels, another type, offsets that overlap, leave gaps or are out of range, a count
// that overflows.
[[nodiscard]] TensorsInBytes from_safetensors(std::string_view bytes, const std::string& file);

}  // namespace ronde::trainer
