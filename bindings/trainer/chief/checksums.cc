// SPDX-License-Identifier: Apache-2.0
// Checksums of files and records.
#include "bindings/trainer/chief/checksums.h"

#include <zlib.h>

#include <array>
#include <boost/crc.hpp>
#include <charconv>
#include <cstddef>

namespace ronde::trainer {

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t kMask = 0xa282ead8;
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

std::string checksum_text(std::string_view bytes) {
  constexpr std::size_t kDigits = 8;
  // zlib's bytes are unsigned char, and its type for checksums has 64 bits here.
  const auto* const first = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto crc = static_cast<std::uint32_t>(crc32_z(0, first, bytes.size()));
  std::array<char, kDigits> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), crc, 16).ptr;
  const std::string text(digits.begin(), end);
  return "crc32:" + std::string(kDigits - text.size(), '0') + text;
}

}  // namespace ronde::trainer
