// SPDX-License-Identifier: Apache-2.0
// Fashion-MNIST: 70,000 grey images of clothes, 28 x 28 pixels, in ten classes.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "bindings/trainer/data/images.h"

namespace ronde::trainer {

struct FashionMnist {
  Images train;
  Images test;
};

inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

// The names of the classes, by label.
inline constexpr std::array<std::string_view, 10> kFashionMnistClasses{
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"};

// Reads the four files, each with or without .gz, from a directory. Throws DataError.
[[nodiscard]] FashionMnist load_fashion_mnist(
    const std::string& directory = kFashionMnistDirectory);
// The format alone, of no images: for a task that is sent its batches.
[[nodiscard]] FashionMnist no_fashion_mnist();

}  // namespace ronde::trainer
