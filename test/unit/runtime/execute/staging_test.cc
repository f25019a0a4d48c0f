// SPDX-License-Identifier: Apache-2.0
// How tensors are cut into chunks: every element once, in order, within its chunk.
#include "runtime/execute/staging.h"

#include <gtest/gtest.h>

#include <vector>

namespace ronde::runtime {
namespace {

std::vector<base::TensorView> tensors_of(const std::vector<std::int64_t>& elements,
                                         base::DType dtype) {
  std::vector<base::TensorView> tensors;
  for (const std::int64_t count : elements) {
    tensors.push_back({nullptr, nullptr, base::Elements(count), dtype});
  }
  return tensors;
}

TEST(CutIntoChunks, NothingIsNoChunk) {
  EXPECT_TRUE(cut_into_chunks({}, 64).empty());
  EXPECT_TRUE(cut_into_chunks(tensors_of({0, 0}, base::DType::kF32), 64).empty());
}

TEST(CutIntoChunks, ATensorBeginsOnALineOfItsOwn) {
  const auto chunks = cut_into_chunks(tensors_of({3, 0, 20, 1}, base::DType::kF32), 128);
  using Parts = std::vector<ChunkPart>;
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0], (Parts{{0, 0, base::Elements(3), 0}, {2, 0, base::Elements(16), 64}}));
  EXPECT_EQ(chunks[1], (Parts{{2, 16, base::Elements(4), 0}, {3, 0, base::Elements(1), 64}}));
}

TEST(CutIntoChunks, EveryElementOnceAndInOrder) {
  for (const base::DType dtype : {base::DType::kU8, base::DType::kF16, base::DType::kF64}) {
    for (const std::int64_t chunk : {64, 128, 1024}) {
      const std::vector<std::int64_t> sizes{1, 65, 0, 1000, 7, 128, 64};
      std::vector<std::int64_t> seen(sizes.size());
      for (const auto& parts : cut_into_chunks(tensors_of(sizes, dtype), chunk)) {
        EXPECT_FALSE(parts.empty());
        std::int64_t end = 0;
        for (const ChunkPart& part : parts) {
          EXPECT_EQ(part.begin, seen[part.tensor]);
          EXPECT_GT(part.elements.value(), 0);
          seen[part.tensor] += part.elements.value();
          EXPECT_GE(part.offset, end);
          EXPECT_EQ(part.offset % 64, 0);
          end = part.offset + part.elements.value() * base::size_of(dtype);
          EXPECT_LE(end, chunk);
        }
      }
      EXPECT_EQ(seen, sizes);
    }
  }
}

}  // namespace
}  // namespace ronde::runtime
