// SPDX-License-Identifier: Apache-2.0
// Labelled images in memory, and the batches made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/tensor.h"

namespace ronde::trainer {

// Pixels stay bytes (a quarter of the memory); a batch converts its own. With `mean` and
// `deviation` of the pixels scaled to 0..1, a batch has about mean 0 and deviation 1.
struct Dataset {
  std::size_t features = 0;  // pixels per image
  std::size_t classes = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  float mean = 0.0F;
  float deviation = 1.0F;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

// Thread safety: a batch belongs to one thread at a time.
struct Batch {
  Matrix images;
  std::vector<std::uint8_t> labels;

  // Takes these samples of the data; memory is kept from batch to batch.
  void gather(const Dataset& data, std::span<const std::uint32_t> samples);
};

struct FashionMnist {
  Dataset train;
  Dataset test;
};

inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

// Reads the four files, each with or without .gz, from a directory. Throws DataError.
FashionMnist load_fashion_mnist(const std::string& directory);

}  // namespace ronde::trainer
