// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), and the keyed hash HMAC-SHA-256 (RFC 2104) by which the ranks of a job
// prove to each other that they know its secret.
//
// It is written out here for two reasons. libronde.so needs the C++ library alone, so OpenSSL's
// libcrypto may not be linked. And the kernel's own hash (AF_ALG) is missing in many kernels and
// barred in most containers. It hashes some hundred bytes a start: speed does not matter, and the
// standards' test vectors cover it. Only data that an attacker may know depends on time here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace ronde::base {

using Digest = std::array<std::byte, 32>;

// Hashes bytes that come in parts. Thread safety: a value; one thread uses it.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  // Call it once, as the last call.
  [[nodiscard]] Digest finish();

 private:
  static constexpr std::size_t kBlock = 64;

  void take_block(std::span<const std::byte, kBlock> block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlock> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t total_ = 0;  // bytes
};

[[nodiscard]] Digest sha256(std::span<const std::byte> bytes);

// The keyed hash of all parts, one after another. The key may have any length, 0 too. Any thread.
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key,
                                 std::initializer_list<std::span<const std::byte>> parts);

}  // namespace ronde::base
