// SPDX-License-Identifier: Apache-2.0
#include "fusion/chunks.h"

#include <algorithm>

namespace ronde::fusion {
namespace {

// The first line of `chunk`: the smallest l with floor(l * chunks / lines) >= chunk, which is
// ceil(chunk * lines / chunks). Written with the quotient apart, so that no product can overflow.
std::int64_t first_line(std::int64_t lines, std::int64_t chunks, std::int64_t chunk) {
  const std::int64_t whole = lines / chunks;
  const std::int64_t rest = lines % chunks;
  return chunk * whole + base::ceil_div(chunk * rest, chunks);
}

}  // namespace

ByteRange chunk_of_tensor(base::Bytes bytes, int chunks, int chunk) {
  base::check(chunk >= 0 && chunk < chunks, "chunk_of_tensor: no such chunk");
  const std::int64_t lines = base::ceil_div(bytes.value(), kLineBytes);
  // Lines are compared, not bytes: the end of the last line could overflow.
  const auto start = [&](int which) {
    const std::int64_t line = first_line(lines, chunks, which);
    return line == lines ? bytes.value() : line * kLineBytes;
  };
  return {start(chunk), start(chunk + 1)};
}

}  // namespace ronde::fusion
