// SPDX-License-Identifier: Apache-2.0
// Reads IDX files (the format of MNIST and its kin), plain or compressed with gzip. A file is a
// magic number, the sizes of the dimensions (big-endian) and one byte per element. Every error
// names the file, the byte of the data, what was expected there and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ronde::trainer {

struct IdxImages {
  std::size_t count = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<std::uint8_t> pixels;
};

// Both throw DataError.
IdxImages read_idx_images(const std::string& file);
// Every label is below `classes`.
std::vector<std::uint8_t> read_idx_labels(const std::string& file, std::size_t classes);

// The labels that so many classes have, in words: "0 to 9".
[[nodiscard]] std::string labels_text(std::size_t classes);

}  // namespace ronde::trainer
