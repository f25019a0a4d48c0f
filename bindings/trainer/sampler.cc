// SPDX-License-Identifier: Apache-2.0
// Shuffling and splitting: see sampler.h.
#include "bindings/trainer/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/random.h"

namespace ronde::trainer {

Range part_of(Range whole, int rank, int ranks) {
  const std::size_t count = static_cast<std::size_t>(ranks);
  const std::size_t index = static_cast<std::size_t>(rank);
  const std::size_t each = whole.size() / count;
  const std::size_t longer = whole.size() % count;  // so many ranks, the first ones, have one more
  const std::size_t first = whole.first + index * each + std::min(index, longer);
  return {first, first + each + (index < longer ? 1 : 0)};
}

EpochSampler::EpochSampler(std::size_t samples, std::size_t global_batch, std::uint64_t seed,
                           std::uint64_t epoch)
    : global_batch_(global_batch) {
  if (global_batch == 0) throw TrainerError("the global batch is 0: use at least 1");
  if (samples > std::numeric_limits<std::uint32_t>::max()) {
    throw TrainerError("the data set has " + std::to_string(samples) +
                       " samples: use at most 4294967295");
  }
  order_.resize(samples);
  std::iota(order_.begin(), order_.end(), 0U);
  Generator generator(seed, epoch);
  for (std::size_t left = samples; left > 1; --left) {
    std::swap(order_[left - 1], order_[generator.below(left)]);
  }
}

std::size_t EpochSampler::batches() const noexcept {
  return order_.size() / global_batch_ + (order_.size() % global_batch_ == 0 ? 0 : 1);
}

std::span<const std::uint32_t> EpochSampler::batch(std::size_t k) const { return batch(k, 0, 1); }

std::span<const std::uint32_t> EpochSampler::batch(std::size_t k, int rank, int ranks) const {
  const std::size_t first = std::min(k * global_batch_, order_.size());
  const std::size_t size = std::min(global_batch_, order_.size() - first);
  const Range range = part_of({first, first + size}, rank, ranks);
  return std::span(order_).subspan(range.first, range.size());
}

}  // namespace ronde::trainer
