// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli) over Boost.CRC, for small records; CRC-32 over zlib, which is ten times as
// fast, for files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ronde::trainer {

[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);
// As in the records of TensorFlow: rotated, and a constant added.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);
// "crc32:" and the 8 hexadecimal digits of CRC-32, as of gzip and Python's zlib.crc32().
[[nodiscard]] std::string checksum_text(std::string_view bytes);

}  // namespace ronde::trainer
