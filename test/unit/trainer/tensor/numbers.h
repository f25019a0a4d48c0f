// SPDX-License-Identifier: Apache-2.0
// Numbers for tensors, and the texts with which something is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

// Numbers in -1 .. 1, the same in every run.
inline std::vector<float> numbers(const Shape& shape, std::uint64_t seed) {
  Generator generator(seed);
  std::vector<float> result(elements_of(shape));
  for (float& value : result) value = generator.uniform(-1.0F, 1.0F);
  return result;
}

// The text with which this is refused.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const TrainerError& error) {
    return error.what();
  }
  return "nothing was refused";
}

struct Given {
  Shape shape;
  std::vector<float> values;
};

}  // namespace ronde::trainer
