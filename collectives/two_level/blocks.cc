// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level/blocks.h"

#include <algorithm>

#include "base/check.h"
#include "collectives/kernels/window_plan.h"

namespace ronde::collectives {

using fusion::ByteRange;
using fusion::kLineBytes;

BlockPlan::BlockPlan(const fusion::FusedView& view, std::int32_t slices, base::Bytes block)
    : slices_(slices) {
  base::check(slices > 0, "BlockPlan: at least one slice");
  std::int64_t longest = 0;
  for (int chunk = 0; chunk < view.chunks(); ++chunk) {
    chunk_bytes_.push_back(view.chunk_bytes(chunk).value());
    longest = std::max(longest, lines(chunk));
  }
  const std::int64_t part = std::max<std::int64_t>(1, block.value() / kLineBytes / view.chunks());
  blocks_ = base::ceil_div(longest, part * slices);
}

std::int64_t BlockPlan::lines(int chunk) const {
  return base::ceil_div(chunk_bytes_.at(base::narrow<std::size_t>(chunk)), kLineBytes);
}

ByteRange BlockPlan::part(std::int64_t block, std::int32_t slice, int chunk) const {
  base::check(block >= 0 && block < blocks_ && slice >= 0 && slice < slices_,
              "BlockPlan: no such part");
  const std::int64_t all = lines(chunk);
  const std::int64_t first = share(all, block, blocks_);
  const std::int64_t here = share(all, block + 1, blocks_) - first;
  const std::int64_t bytes = chunk_bytes_.at(base::narrow<std::size_t>(chunk));
  // Lines are compared and not bytes, because the end of the last line could overflow.
  const auto byte_of = [&](std::int64_t line) { return line == all ? bytes : line * kLineBytes; };
  return {byte_of(first + share(here, slice, slices_)),
          byte_of(first + share(here, slice + 1, slices_))};
}

std::vector<fusion::ViewPart> BlockPlan::parts(std::int64_t block, std::int32_t slice) const {
  std::vector<fusion::ViewPart> result;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    const ByteRange range = part(block, slice, chunk);
    if (range.length() > 0) result.push_back({chunk, range});
  }
  return result;
}

std::vector<std::vector<fusion::ViewPart>> BlockPlan::parts_by_position(
    std::int64_t block, std::int32_t positions) const {
  std::vector<std::vector<fusion::ViewPart>> result(base::narrow<std::size_t>(positions));
  for (std::int32_t slice = 0; slice < slices_; ++slice) {
    result.at(base::narrow<std::size_t>(slice)) = parts(block, slice);
  }
  return result;
}

base::Bytes BlockPlan::slice_bytes() const {
  std::int64_t sum = 0;
  for (int chunk = 0; chunk < chunks() && blocks_ > 0; ++chunk) {
    sum += base::ceil_div(base::ceil_div(lines(chunk), blocks_), slices_);
  }
  return base::Bytes(sum * kLineBytes);
}

}  // namespace ronde::collectives
