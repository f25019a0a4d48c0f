// SPDX-License-Identifier: Apache-2.0
// Makes small IDX files, good and bad ones, in a folder that goes away with the test.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {

using Bytes = std::vector<std::uint8_t>;

inline Bytes big_endian(std::initializer_list<std::uint32_t> numbers) {
  Bytes bytes;
  for (const std::uint32_t number : numbers) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<std::uint8_t>(number >> shift));
    }
  }
  return bytes;
}

inline Bytes image_bytes(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  Bytes bytes = big_endian({0x803, count, rows, columns});
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i * 7));
  }
  return bytes;
}

inline Bytes label_bytes(std::uint32_t count) {
  Bytes bytes = big_endian({0x801, count});
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 10));
  return bytes;
}

class DataFiles : public testing::Test {
 protected:
  // A name ending in .gz is compressed.
  std::string write(const std::string& name, const Bytes& bytes) {
    const std::string path = folder_ + "/" + name;
    if (name.ends_with(".gz")) {
      gzFile file = gzopen(path.c_str(), "wb");
      gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
      gzclose(file);
    } else {
      write_raw(path, bytes);
    }
    return path;
  }
  static void write_raw(const std::string& path, const Bytes& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  static Bytes read_raw(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return {text.begin(), text.end()};
  }

  const TemporaryFolder temporary_;
  std::string folder_ = temporary_.path();
};

}  // namespace ronde::trainer
