// SPDX-License-Identifier: Apache-2.0
// The rounds of SHA-256 as FIPS 180-4 numbers them (sections 4.1.2, 4.2.2, 5.1.1 and 6.2).
#include "base/wire/sha256.h"

#include <algorithm>
#include <bit>

namespace ronde::base {

namespace {

constexpr std::size_t kBlockBytes = 64;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t word_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i)
    word = word << 8U | std::to_integer<std::uint32_t>(bytes[at + i]);
  return word;
}

template <class Word>
void put_word(std::span<std::byte> bytes, std::size_t at, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) {
    bytes[at + i] = static_cast<std::byte>(word >> 8U * (sizeof word - 1 - i));
  }
}

std::uint32_t small_sigma(std::uint32_t x, int first, int second, unsigned shift) {
  return std::rotr(x, first) ^ std::rotr(x, second) ^ (x >> shift);
}

std::uint32_t big_sigma(std::uint32_t x, int first, int second, int third) {
  return std::rotr(x, first) ^ std::rotr(x, second) ^ std::rotr(x, third);
}

}  // namespace

void Sha256::take_block(std::span<const std::byte, kBlock> block) {
  std::array<std::uint32_t, 64> schedule{};
  for (std::size_t t = 0; t < 16; ++t) schedule.at(t) = word_at(block, 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    schedule.at(t) = small_sigma(schedule.at(t - 2), 17, 19, 10) + schedule.at(t - 7) +
                     small_sigma(schedule.at(t - 15), 7, 18, 3) + schedule.at(t - 16);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t first =
        h + big_sigma(e, 6, 11, 25) + choice + kRound.at(t) + schedule.at(t);
    const std::uint32_t second = big_sigma(a, 2, 13, 22) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) state_.at(i) += added.at(i);
}

void Sha256::update(std::span<const std::byte> bytes) {
  total_ += bytes.size();
  while (!bytes.empty()) {
    const std::size_t taken = std::min(bytes.size(), kBlock - pending_size_);
    std::copy_n(bytes.begin(), taken,
                pending_.begin() + static_cast<std::ptrdiff_t>(pending_size_));
    pending_size_ += taken;
    bytes = bytes.subspan(taken);
    if (pending_size_ < kBlock) return;
    take_block(pending_);
    pending_size_ = 0;
  }
}

Digest Sha256::finish() {
  const std::uint64_t bits = total_ * 8;
  // A one bit, zeros, and the length in 64 bits at the end of a block.
  std::array<std::byte, 2 * kBlock> padding{std::byte{0x80}};
  const std::size_t room = kBlock - pending_size_;
  const std::size_t size = room >= 1 + sizeof bits ? room : room + kBlock;
  put_word(std::span<std::byte>(padding), size - sizeof bits, bits);
  update(std::span<const std::byte>(padding).first(size));
  Digest digest{};
  for (std::size_t i = 0; i < state_.size(); ++i) {
    put_word(std::span<std::byte>(digest), 4 * i, state_.at(i));
  }
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Digest hmac_sha256(std::span<const std::byte> key,
                   std::initializer_list<std::span<const std::byte>> parts) {
  std::array<std::byte, kBlockBytes> inner{};
  if (key.size() > inner.size()) {
    const Digest shorter = sha256(key);
    std::copy(shorter.begin(), shorter.end(), inner.begin());
  } else {
    std::copy(key.begin(), key.end(), inner.begin());
  }
  std::array<std::byte, kBlockBytes> outer = inner;
  for (std::byte& byte : inner) byte ^= std::byte{0x36};
  for (std::byte& byte : outer) byte ^= std::byte{0x5c};
  Sha256 inside;
  inside.update(inner);
  for (const auto part : parts) inside.update(part);
  const Digest digest = inside.finish();
  Sha256 outside;
  outside.update(outer);
  outside.update(digest);
  return outside.finish();
}

}  // namespace ronde::base
