// SPDX-License-Identifier: Apache-2.0
#include "fusion/batching.h"

#include <algorithm>
#include <numeric>

namespace ronde::fusion {

std::vector<std::size_t> next_batch(std::span<const Candidate> ready, base::Bytes limit) {
  std::vector<std::size_t> order(ready.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ready[a].priority > ready[b].priority;
  });

  std::vector<std::size_t> batch;
  if (order.empty()) return batch;
  const Candidate& first = ready[order.front()];
  batch.push_back(order.front());
  if (first.key == 0 || first.bytes > limit) return batch;

  base::Bytes room = limit - first.bytes;
  for (const std::size_t index : std::span(order).subspan(1)) {
    const Candidate& candidate = ready[index];
    if (candidate.key != first.key || candidate.bytes > room) continue;
    batch.push_back(index);
    room = room - candidate.bytes;
  }
  return batch;
}

}  // namespace ronde::fusion
