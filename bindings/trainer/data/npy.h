// SPDX-License-Identifier: Apache-2.0
// Reads NumPy's .npy files, as np.save() writes them: little-endian, rows first, version 1 to 3.
// Every error names the file, what was expected and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/shape.h"

namespace ronde::trainer {

template <typename Number>
struct NpyArray {
  Shape shape;
  std::vector<Number> values;
};

// Floating-point and whole numbers of any width, and booleans, as f32. Throws DataError.
[[nodiscard]] NpyArray<float> read_npy(const std::string& file);
// Whole numbers of any width: floating-point ones are refused. Throws DataError.
[[nodiscard]] NpyArray<std::int64_t> read_npy_integers(const std::string& file);

}  // namespace ronde::trainer
