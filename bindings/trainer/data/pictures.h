// SPDX-License-Identifier: Apache-2.0
// Labelled images from where people have them: a folder of pictures, and files in CIFAR's format.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bindings/trainer/data/images.h"

namespace ronde::trainer {

struct Pictures {
  Images images;
  std::vector<std::string> classes;  // by label
};

// `folder` has a folder for each class, with its pictures as PNG files: labels are in the order of
// the classes' names, images in that of the files'. Pictures become grey (channels = 1) or red,
// green and blue (3), 8 bits each; all of them have one size. What is hidden or no .png is left
// out. Throws DataError.
[[nodiscard]] Pictures read_pictures(const std::string& folder, std::size_t channels = 3);

// Files of records of a label byte and 3 x 32 x 32 bytes, as CIFAR-10's binary version has: one
// after the other. Throws DataError.
[[nodiscard]] Images read_cifar(const std::vector<std::string>& files, std::size_t classes = 10);

}  // namespace ronde::trainer
