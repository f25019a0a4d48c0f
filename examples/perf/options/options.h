// SPDX-License-Identifier: Apache-2.0
// What a run of ronde-perf is asked to measure, and what follows from it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/flags/flags.h"
#include "examples/perf/options/types.h"

namespace ronde::perf {

using base::flags::UsageError;

// Fewer repetitions tell nothing about the noise, which --baseline has to know.
inline constexpr std::uint64_t kBaselineRepetitions = 5;

// More sizes than this in one run are a mistake in the flags.
inline constexpr std::size_t kMostSizes = 10'000;

struct Options {
  bool help = false;
  bool version = false;
  std::size_t least_bytes = 8;
  std::size_t most_bytes = 64U << 20U;
  std::size_t step_factor = 4;
  std::size_t step_bytes = 0;    // 0: by factor
  std::uint64_t iterations = 0;  // 0: by size
  std::int64_t warm_up = -1;     // -1: by size
  std::vector<const DType*> dtypes;
  std::vector<const Op*> ops;
  bool check = true;
  int root = 0;
  Operation operation{};
  std::string model;  // empty: none
  std::string device = "cpu";
  bool in_place = true;
  bool out_of_place = true;
  std::vector<std::string> against;
  std::uint64_t repetitions = 5;
  std::string json;
  std::string csv;
  std::string svg;
  std::string baseline;
  double tolerance = 0.1;
  double timeout_seconds = 300;
  bool corrupt = false;
  bool on_board = false;
  bool prepared = false;
  std::vector<std::string> command;  // as it was typed
};

// Returns the sizes to measure, each once: steps from the least, and the most in any case, unless
// the flags leave only the least.
[[nodiscard]] std::vector<std::size_t> sizes_of(const Options& options);

// Returns the user's number, or else many iterations for small sizes and few for large ones.
[[nodiscard]] std::uint64_t iterations_for(const Options& options, std::size_t bytes);
[[nodiscard]] std::uint64_t warm_up_for(const Options& options, std::size_t bytes);

}  // namespace ronde::perf
