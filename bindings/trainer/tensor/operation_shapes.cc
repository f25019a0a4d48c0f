// SPDX-License-Identifier: Apache-2.0
// Saying which shapes do not fit.
#include "bindings/trainer/tensor/operation_shapes.h"

#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

std::string described(const Tensor& tensor) {
  const std::string name = tensor.tape().name_of(tensor);
  const std::string shape = text_of(tensor.shape());
  return name.empty() ? shape : name + " (" + shape + ")";
}

void refuse_shapes(const std::string& operation, const Tensor& a, const Tensor& b,
                   const std::string& remedy) {
  throw TrainerError(operation + ": " + described(a) + " does not fit " + described(b) + ": " +
                     remedy);
}

void require_sides(const std::string& operation, const Tensor& tensor, std::size_t sides) {
  if (tensor.shape().size() == sides) return;
  throw TrainerError(operation + ": " + described(tensor) + " has " +
                     std::to_string(tensor.shape().size()) + " sides, expected " +
                     std::to_string(sides) + ": reshape it");
}

}  // namespace ronde::trainer
