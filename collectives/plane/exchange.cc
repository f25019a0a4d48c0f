// SPDX-License-Identifier: Apache-2.0
// The blocks of an exchange.
#include "collectives/plane/exchange.h"

#include <cstddef>

namespace ronde::collectives {

using base::Result;
using Views = std::vector<base::TensorView>;

Views cut(const Exchange& exchange, std::span<const std::int64_t> rows, const std::byte* input,
          std::byte* output) {
  Views blocks;
  blocks.reserve(rows.size());
  for (const std::int64_t count : rows) {
    const base::Elements elements(count * exchange.row.value());
    blocks.push_back({input, output, elements, exchange.how.dtype});
    const std::int64_t bytes = blocks.back().bytes().value();
    if (input != nullptr) input += bytes;
    if (output != nullptr) output += bytes;
  }
  return blocks;
}

Result<Views> blocks_of(const Exchange& exchange, int rank) {
  const base::TensorView& tensor = exchange.tensors.front();
  const auto own = base::narrow<std::size_t>(rank);
  if (exchange.what().makes_result()) {
    RONDE_ASSIGN_OR_RETURN(const auto memory, exchange.result(exchange.rows));
    Views blocks = cut(exchange, exchange.rows, nullptr, memory.data());
    blocks[own].input = tensor.input;
    return blocks;
  }
  Views blocks = cut(exchange, exchange.rows, tensor.input, nullptr);
  blocks[own].output = tensor.output;
  return blocks;
}

Result<fusion::FusedView> chunks_of(const Exchange& exchange, int rank) {
  RONDE_ASSIGN_OR_RETURN(const auto blocks, blocks_of(exchange, rank));
  return fusion::FusedView::of_chunks(exchange.how.dtype, blocks);
}

}  // namespace ronde::collectives
