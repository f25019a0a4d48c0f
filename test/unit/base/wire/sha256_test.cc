// SPDX-License-Identifier: Apache-2.0
// SHA-256 and HMAC-SHA-256 against the standards' vectors, and against Python's hashlib and hmac.
#include "base/wire/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace ronde::base {
namespace {

std::span<const std::byte> text(std::string_view characters) {
  return std::as_bytes(std::span(characters));
}

std::string hex(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  for (const std::byte byte : digest) {
    result += kDigits[std::to_integer<unsigned>(byte >> 4)];
    result += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return result;
}

std::vector<std::byte> repeated(unsigned byte, std::size_t times) {
  return std::vector<std::byte>(times, static_cast<std::byte>(byte));
}

// Bytes that any language makes easily: (7 i + 3) modulo 256.
std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(7 * i + 3);
  return bytes;
}

TEST(Sha256, VectorsOfFips180) {
  EXPECT_EQ(hex(sha256(text("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(text(""))),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(text("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                            "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"))),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex(sha256(repeated('a', 1'000'000))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLengthAsPythonHasIt) {
  const auto bytes = counted(400);
  Sha256 all;
  for (std::size_t size = 0; size <= 300; ++size) all.update(sha256(std::span(bytes).first(size)));
  EXPECT_EQ(hex(all.finish()), "7d917fbd2cf49ddff9ad0a8706bba32d204e92e71d2e369c5a03d6af29278c9f");
}

TEST(Sha256, PartsOfAnySize) {
  const auto bytes = counted(300);
  for (std::size_t step = 1; step < 150; ++step) {
    Sha256 hash;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      hash.update(std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
    }
    EXPECT_EQ(hash.finish(), sha256(bytes)) << step;
  }
}

TEST(Hmac, VectorsOfRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(repeated(0x0b, 20), {text("Hi There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(text("Jefe"), {text("what do ya want "), text("for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(repeated(0xaa, 20), {repeated(0xdd, 50)})),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::vector<std::byte> key(25);
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i + 1);
  EXPECT_EQ(hex(hmac_sha256(key, {repeated(0xcd, 50)})),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hex(hmac_sha256(repeated(0x0c, 20), {text("Test With Truncation")})).substr(0, 32),
            "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(hex(hmac_sha256(repeated(0xaa, 131),
                            {text("Test Using Larger Than Block-Size Key - Hash Key First")})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(
      hex(hmac_sha256(repeated(0xaa, 131),
                      {text("This is a test using a larger than block-size key and a larger than "
                            "block-size data. The key needs to be hashed before being used by the "
                            "HMAC algorithm.")})),
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(Hmac, EveryLengthOfKeyAsPythonHasIt) {
  const auto bytes = counted(400);
  Sha256 all;
  for (std::size_t key = 0; key <= 200; ++key) {
    all.update(
        hmac_sha256(std::span(bytes).first(key), {std::span(bytes).subspan(key, key * 5 % 199)}));
  }
  EXPECT_EQ(hex(all.finish()), "318dc12f3b58fe8eda80684d6ffb54daf4618070dbb6b790095aca995298a23a");
}

}  // namespace
}  // namespace ronde::base
