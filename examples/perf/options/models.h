// SPDX-License-Identifier: Apache-2.0
// The gradients of well-known models, as exact lists of tensors: what a training step really
// averages. Small tensors by the hundred, or one of 392 MiB, stress a runtime in different ways.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ronde::perf {

struct Gradient {
  std::string name;
  std::size_t elements = 0;
};

[[nodiscard]] bool model_exists(std::string_view name);
[[nodiscard]] std::string model_names();

// Returns the gradients in the order in which a backward pass produces them, the last layer first.
// The model must exist.
[[nodiscard]] std::vector<Gradient> gradients_of(std::string_view model);

}  // namespace ronde::perf
