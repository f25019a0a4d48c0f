// SPDX-License-Identifier: Apache-2.0
// Secrets are compared whole, whatever their lengths, and random bytes differ.
#include "base/process/secrets.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>

namespace ronde::base {
namespace {

TEST(Secrets, AreTheSameOnlyWhole) {
  const std::array<std::byte, 3> one{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<std::byte, 3> other{std::byte{1}, std::byte{2}, std::byte{4}};
  EXPECT_TRUE(same_secret(one, one));
  EXPECT_FALSE(same_secret(one, other));
  EXPECT_FALSE(same_secret(one, std::span(one).first(2)));
  EXPECT_FALSE(same_secret(std::span(one).first(2), one));
  EXPECT_TRUE(same_secret({}, {}));
}

TEST(Secrets, RandomBytesDiffer) {
  EXPECT_NE(random_bytes<16>().value(), random_bytes<16>().value());
}

}  // namespace
}  // namespace ronde::base
