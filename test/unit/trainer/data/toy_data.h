// SPDX-License-Identifier: Apache-2.0
// Small images that a small network learns in a few epochs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/trainer/data/images.h"
#include "bindings/trainer/tensor/random.h"

namespace ronde::trainer {

inline constexpr std::size_t kFeatures = 16;
inline constexpr std::size_t kClasses = 4;

// Noise with one bright quarter, which is the label.
inline Images toy_data(std::size_t samples, std::uint64_t seed) {
  Images data;
  data.height = 4;
  data.width = kFeatures / data.height;
  data.classes = kClasses;
  data.mean = 0.5F;
  data.deviation = 0.3F;
  Generator generator(seed);
  for (std::size_t i = 0; i < samples; ++i) {
    const auto label = static_cast<std::uint8_t>(generator.below(kClasses));
    data.labels.push_back(label);
    for (std::size_t j = 0; j < kFeatures; ++j) {
      const std::uint64_t base = j / (kFeatures / kClasses) == label ? 100 : 0;
      data.pixels.push_back(static_cast<std::uint8_t>(base + generator.below(150)));
    }
  }
  return data;
}

}  // namespace ronde::trainer
