// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/context.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace ronde::collectives {

using base::Bytes;
using base::JobShape;
using fusion::FusedView;

// A block has a few segments of every chunk, unless there are very many hosts.
Bytes default_block(const JobShape& shape) {
  constexpr std::int64_t kBlockBytes = 1 << 20;
  constexpr std::int64_t kSmallestPartBytes = 64 << 10;
  return Bytes(std::max(kBlockBytes, shape.hosts() * kSmallestPartBytes));
}

std::int32_t slices_for(Bytes on_wire, const JobShape& shape) {
  // Below this size a message costs as much as its bytes.
  constexpr std::int64_t kSmallestSliceBytes = 4 << 10;
  return base::narrow<std::int32_t>(
      std::clamp<std::int64_t>(on_wire.value() / kSmallestSliceBytes, 1, shape.slices()));
}

FusedView by_host(const JobShape& shape, const FusedView& blocks) {
  base::check_eq(blocks.chunks(), shape.ranks(), "by_host: a block of each rank");
  std::vector<std::vector<fusion::ViewPart>> parts(base::narrow<std::size_t>(shape.hosts()));
  for (std::int32_t rank = 0; rank < shape.ranks(); ++rank) {
    parts.at(base::narrow<std::size_t>(shape.host_of(rank)))
        .push_back({rank, {0, blocks.chunk_bytes(rank).value()}});
  }
  return FusedView::of_parts(blocks, parts);
}

}  // namespace ronde::collectives
