// SPDX-License-Identifier: Apache-2.0
// Labelled images in memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ronde::trainer {

// Pixels stay bytes (a quarter of the memory); a batch converts its own. With `mean` and
// `deviation` of the pixels scaled to 0..1, a batch has about mean 0 and deviation 1.
//
// Thread safety: that of its members: any number of threads may read it.
struct Images {
  std::size_t channels = 1;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t classes = 0;
  std::vector<std::uint8_t> pixels;  // image by image, channel by channel, row by row
  std::vector<std::uint8_t> labels;  // one for each image, below `classes`
  float mean = 0.0F;
  float deviation = 1.0F;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
  // Pixels per image.
  [[nodiscard]] std::size_t features() const noexcept { return channels * height * width; }
  // In a batch a pixel is byte * scale() + shift().
  [[nodiscard]] float scale() const noexcept { return 1.0F / (255.0F * deviation); }
  [[nodiscard]] float shift() const noexcept { return -mean / deviation; }
};

// Reads a pair of IDX files, each plain or compressed with gzip. Pixels are left at mean 0 and
// deviation 1: 0..1 in a batch. Throws DataError, also where the files have different counts.
[[nodiscard]] Images read_images(const std::string& images_file, const std::string& labels_file,
                                 std::size_t classes);

// The images of two classes, in their order; the first class has the label 0 from now on, the
// second 1. Throws TrainerError if these are no two classes of the images.
[[nodiscard]] Images select_classes(const Images& images,
                                    const std::array<std::size_t, 2>& classes);

}  // namespace ronde::trainer
