// SPDX-License-Identifier: Apache-2.0
// The flags that the benchmark programs share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ronde::bench {

struct Options {
  std::vector<std::int64_t> sizes;  // bytes; multiples of 4
  int ranks = 2;                    // of `floor`, which starts its own processes
  int repetitions = 5;
  bool floor = false;  // `data_plane`: the floor and memcpy too
  bool best = false;   // `data_plane`: OpenMPI's best forced algorithm too
  bool cold = false;   // `data_plane`: something else has used the caches before every call
  bool quick = false;
  bool json = false;
};

// Ends the process when the flags are wrong (2) or help was asked for (0).
// `starts_ranks`: the program has --ranks instead of --floor and --best.
[[nodiscard]] Options read_options(int argc, char** argv, const std::string& summary,
                                   bool starts_ranks);

}  // namespace ronde::bench
