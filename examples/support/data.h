// SPDX-License-Identifier: Apache-2.0
// The data of an example: either all ranks have it, or all of them fail.
#pragma once

#include <string>

#include "bindings/trainer/data/fashion_mnist.h"
#include "bindings/trainer/loop/replica.h"

namespace ronde::examples {

inline constexpr const char* kDataHelp = "directory with the four IDX files of Fashion-MNIST";

// Collective. Throws AgreedError with what is wrong on the first rank that has no data.
[[nodiscard]] trainer::FashionMnist load_on_all_ranks(trainer::Replica& replica,
                                                      const std::string& directory);

}  // namespace ronde::examples
