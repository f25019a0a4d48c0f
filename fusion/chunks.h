// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the chunk-major layout. Which chunk an element belongs to decides the order in
// which its contributions are summed, so it must depend on its own tensor alone, never on what the
// tensor was fused with: every tensor is cut into chunks by itself.
//
//   tensor of L = 7 lines, 3 chunks:   line   0 1 2 3 4 5 6
//                                      chunk  0 0 0 1 1 2 2      line l lies in floor(l * 3 / 7)
#pragma once

#include <cstdint>

#include "base/numbers.h"

namespace ronde::fusion {

// The grain of chunks: a cache line.
inline constexpr std::int64_t kLineBytes = 64;

// Bytes [begin, end) of a tensor or a chunk.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] constexpr std::int64_t length() const { return end - begin; }
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

// The bytes of a tensor of `bytes` bytes that lie in `chunk` of `chunks`; empty ranges are legal.
// The last line of a tensor may be short.
[[nodiscard]] ByteRange chunk_of_tensor(base::Bytes bytes, int chunks, int chunk);

}  // namespace ronde::fusion
