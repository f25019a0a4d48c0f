// SPDX-License-Identifier: Apache-2.0
// How a range is cut into parts.
#include "bindings/trainer/data/sampler.h"

#include <algorithm>

namespace ronde::trainer {

Range part_of(Range whole, std::size_t rank, std::size_t ranks) {
  const std::size_t each = whole.size() / ranks;
  const std::size_t longer = whole.size() % ranks;  // so many ranks, the first ones, have one more
  const std::size_t first = whole.first + rank * each + std::min(rank, longer);
  return {first, first + each + (rank < longer ? 1 : 0)};
}

}  // namespace ronde::trainer
