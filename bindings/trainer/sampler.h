// SPDX-License-Identifier: Apache-2.0
// Which samples are in which batch, and which rank has which of them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ronde::trainer {

struct Range {
  std::size_t first = 0;
  std::size_t last = 0;  // one past the end

  [[nodiscard]] std::size_t size() const noexcept { return last - first; }
};

// The contiguous part of `whole` that `rank` has. Sizes differ by at most 1; with more ranks than
// elements some parts are empty.
Range part_of(Range whole, int rank, int ranks);

// The batches of one epoch: a shuffle of all samples that depends on seed and epoch alone, cut into
// global batches. Batch k holds the same samples for every number of ranks; these share it. The
// last, shorter batch is kept, so that an epoch is every sample once and its mean loss a mean over
// the data.
//
// Thread safety: immutable.
class EpochSampler {
 public:
  EpochSampler(std::size_t samples, std::size_t global_batch, std::uint64_t seed,
               std::uint64_t epoch);

  [[nodiscard]] std::size_t batches() const noexcept;
  // All samples of batch k.
  [[nodiscard]] std::span<const std::uint32_t> batch(std::size_t k) const;
  // Those of them that `rank` has.
  [[nodiscard]] std::span<const std::uint32_t> batch(std::size_t k, int rank, int ranks) const;

 private:
  std::size_t global_batch_;
  std::vector<std::uint32_t> order_;
};

}  // namespace ronde::trainer
