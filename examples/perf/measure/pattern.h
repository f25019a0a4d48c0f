// SPDX-License-Identifier: Apache-2.0
// The input values, and the check of every result. Values are small whole numbers,
// so sums are exact in every dtype and order. They repeat after a prime number of elements, so that
// rewriting a buffer is a few long copies and checking a result a few long comparisons, and yet a
// result that is displaced, or left over from the iteration before, does not match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/perf/options/types.h"

namespace ronde::perf {

// A run of elements taken from a table, beginning at an element of it and going round.
struct Run {
  const std::vector<std::byte>* table = nullptr;
  std::size_t first = 0;
  std::size_t elements = 0;
};

// The values of all ranks for one dtype, op and number of ranks.
//
// Thread safety: constant after its construction.
class Pattern {
 public:
  static constexpr std::size_t kPeriod = 4093;  // a prime: no power of two is a multiple of it

  Pattern(const DType& dtype, const Op& op, int ranks);

  // The input of rank shape.rank in an iteration.
  [[nodiscard]] Run input(const Case& shape, std::uint64_t iteration) const;
  // The result that it must get, in runs that follow each other.
  [[nodiscard]] std::vector<Run> expected(const Case& shape, std::uint64_t iteration) const;

  [[nodiscard]] const DType& dtype() const { return *dtype_; }
  [[nodiscard]] const Op& op() const { return *op_; }

  // Writes a run. `memory` holds its elements exactly.
  void write(const Run& run, std::span<std::byte> memory) const;
  // Counts the elements that differ from the run.
  [[nodiscard]] std::uint64_t count_wrong(const Run& run, std::span<const std::byte> memory) const;

 private:
  [[nodiscard]] std::uint64_t differing(const std::byte* expected, const std::byte* found,
                                        std::size_t elements) const;

  const DType* dtype_;
  const Op* op_;
  std::vector<std::vector<std::byte>> inputs_;  // one table for each rank
  std::vector<std::byte> reduced_;
};

}  // namespace ronde::perf
