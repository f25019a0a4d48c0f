// SPDX-License-Identifier: Apache-2.0
// The errors of operations whose inputs do not fit.
#pragma once

#include <string>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/tensor.h"

namespace ronde::trainer {

// The operand in words: "fc1/weight (784 x 128)" for a parameter, else its shape.
[[nodiscard]] std::string described(const Tensor& tensor);

// Throws TrainerError with both operands: "linear: 64 x 100 does not fit fc1/weight (784 x 128):
// <remedy>".
[[noreturn]] void refuse_shapes(const std::string& operation, const Tensor& a, const Tensor& b,
                                const std::string& remedy);

// Throws TrainerError unless the tensor has this many sides.
void require_sides(const std::string& operation, const Tensor& tensor, std::size_t sides);

}  // namespace ronde::trainer
