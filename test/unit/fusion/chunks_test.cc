// SPDX-License-Identifier: Apache-2.0
#include "fusion/chunks.h"

#include <gtest/gtest.h>

#include <limits>

namespace ronde::fusion {
namespace {

using base::Bytes;

TEST(Chunks, EveryLineLiesInTheChunkOfTheFormula) {
  for (std::int64_t lines = 0; lines <= 70; ++lines) {
    for (int chunks = 1; chunks <= 33; ++chunks) {
      std::int64_t expected_begin = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const ByteRange range = chunk_of_tensor(Bytes(lines * 64), chunks, chunk);
        ASSERT_EQ(range.begin, expected_begin);
        ASSERT_EQ(range.begin % 64, 0);
        for (std::int64_t line = range.begin / 64; line < range.end / 64; ++line) {
          ASSERT_EQ(line * chunks / lines, chunk) << lines << " lines, " << chunks << " chunks";
        }
        expected_begin = range.end;
      }
      ASSERT_EQ(expected_begin, lines * 64);
    }
  }
}

TEST(Chunks, AShortLastLineStaysWhole) {
  for (std::int64_t bytes = 0; bytes <= 400; ++bytes) {
    for (int chunks = 1; chunks <= 9; ++chunks) {
      std::int64_t end = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const ByteRange range = chunk_of_tensor(Bytes(bytes), chunks, chunk);
        ASSERT_EQ(range.begin, end);
        ASSERT_TRUE(range.end % 64 == 0 || range.end == bytes) << bytes << " bytes";
        end = range.end;
      }
      ASSERT_EQ(end, bytes);
    }
  }
}

TEST(Chunks, ALineInTheMiddleOfAnExample) {
  // 7 lines, 3 chunks: 0 0 0 1 1 2 2, as in the header.
  EXPECT_EQ(chunk_of_tensor(Bytes(7 * 64), 3, 0), (ByteRange{0, 192}));
  EXPECT_EQ(chunk_of_tensor(Bytes(7 * 64), 3, 1), (ByteRange{192, 320}));
  EXPECT_EQ(chunk_of_tensor(Bytes(7 * 64), 3, 2), (ByteRange{320, 448}));
  // One line goes to chunk 0, whatever the number of chunks.
  EXPECT_EQ(chunk_of_tensor(Bytes(4), 8, 0), (ByteRange{0, 4}));
  EXPECT_EQ(chunk_of_tensor(Bytes(4), 8, 7), (ByteRange{4, 4}));
}

TEST(Chunks, HugeTensorsDoNotOverflow) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const int chunks = std::numeric_limits<int>::max();
  EXPECT_EQ(chunk_of_tensor(Bytes(most), chunks, 0).begin, 0);
  EXPECT_EQ(chunk_of_tensor(Bytes(most), chunks, chunks - 1).end, most);
  for (int chunk : {0, 1, chunks / 2, chunks - 2}) {
    EXPECT_EQ(chunk_of_tensor(Bytes(most), chunks, chunk).end,
              chunk_of_tensor(Bytes(most), chunks, chunk + 1).begin);
  }
}

}  // namespace
}  // namespace ronde::fusion
