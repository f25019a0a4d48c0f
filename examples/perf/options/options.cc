// SPDX-License-Identifier: Apache-2.0
#include "examples/perf/options/options.h"

#include <algorithm>

namespace ronde::perf {

std::vector<std::size_t> sizes_of(const Options& options) {
  if (row_of(options.operation).input == RONDE_NOTHING) return {0};
  std::vector<std::size_t> sizes;
  for (std::size_t size = std::max<std::size_t>(options.least_bytes, 1);
       size <= options.most_bytes && sizes.size() <= kMostSizes;) {
    sizes.push_back(size);
    if (options.step_bytes != 0) {
      size += options.step_bytes;
    } else if (options.step_factor > 1) {
      size *= options.step_factor;
    } else {
      return sizes;
    }
  }
  if (sizes.size() <= kMostSizes && sizes.back() != options.most_bytes) {
    sizes.push_back(options.most_bytes);
  }
  return sizes;
}

std::uint64_t iterations_for(const Options& options, std::size_t bytes) {
  if (options.iterations != 0) return options.iterations;
  if (bytes <= 64U << 10U) return 1000;
  if (bytes <= 1U << 20U) return 200;
  return bytes <= 256U << 20U ? 20 : 5;
}

std::uint64_t warm_up_for(const Options& options, std::size_t bytes) {
  if (options.warm_up >= 0) return static_cast<std::uint64_t>(options.warm_up);
  if (bytes <= 1U << 20U) return 5;
  return bytes <= 256U << 20U ? 2 : 1;
}

}  // namespace ronde::perf
