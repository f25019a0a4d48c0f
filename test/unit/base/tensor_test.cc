// SPDX-License-Identifier: Apache-2.0
// Shapes and their sizes, up to the edge of 63 bits.
#include "base/tensor.h"

#include <gtest/gtest.h>

#include <limits>

namespace ronde::base {
namespace {

constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max();

TEST(Tensor, ShapesInWords) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{5}), "[5]");
  EXPECT_EQ(to_string(Shape{128, 784}), "[128, 784]");
}

TEST(Tensor, ElementsAreTheProduct) {
  EXPECT_EQ(elements_of({}).value(), Elements(1));
  EXPECT_EQ(elements_of({7}).value(), Elements(7));
  EXPECT_EQ(elements_of({2, 3, 4}).value(), Elements(24));
  EXPECT_EQ(elements_of({kMostElements}).value(), Elements(kMostElements));
  EXPECT_EQ(elements_of({3, 0, 4}).value(), Elements(0));
  EXPECT_EQ(elements_of({kMostElements, kMostElements, 0}).value(), Elements(0))
      << "zero, whatever the rest is";
}

TEST(Tensor, ShapesThatAreNoneSaySo) {
  const auto negative = elements_of({2, -1});
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(negative.status().message(), "shape [2, -1] has a negative dimension");
  EXPECT_FALSE(elements_of({0, -1}).ok()) << "a zero excuses nothing";
  const auto large = elements_of({1LL << 32, 1LL << 31});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().message(),
            "shape [4294967296, 2147483648] has more than 2^63 - 1 elements");
}

TEST(Tensor, BytesOfElements) {
  for (const DTypeRow& row : kDTypes) {
    EXPECT_EQ(bytes_of(Elements(10), row.dtype).value(), Bytes(10 * row.size)) << row.name;
    EXPECT_EQ(bytes_of(Elements(kMostElements / row.size), row.dtype).ok(), true) << row.name;
    EXPECT_EQ(bytes_of(Elements(kMostElements / row.size + (row.size > 1 ? 1 : 0)), row.dtype).ok(),
              row.size == 1)
        << row.name;
  }
  const auto large = bytes_of(Elements(kMostElements), DType::kF32);
  EXPECT_EQ(large.status().message(),
            "9223372036854775807 elements of f32 are more than 2^63 - 1 bytes");
}

TEST(Tensor, AViewKnowsItsBytes) {
  TensorView view;
  EXPECT_EQ(view.bytes(), Bytes(0));
  view.elements = Elements(6);
  view.dtype = DType::kF64;
  EXPECT_EQ(view.bytes(), Bytes(48));
}

}  // namespace
}  // namespace ronde::base
