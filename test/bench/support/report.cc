// SPDX-License-Identifier: Apache-2.0
// People read the table, and rows.py reads the JSON.
#include "test/bench/support/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>

namespace ronde::bench {

namespace {

void print_json(const std::vector<Sample>& samples, int ranks) {
  std::printf("{\"ranks\": %d, \"samples\": [", ranks);
  const char* separator = "\n";
  for (const Sample& sample : samples) {
    std::printf("%s{\"contender\": \"%s\", \"bytes\": %" PRId64
                ", \"repetition\": %d, \"median_us\": %.4f, \"min_us\": %.4f, \"wrong\": %" PRIu64
                "}",
                separator, sample.contender.c_str(), sample.bytes, sample.repetition,
                sample.median_us, sample.min_us, sample.wrong);
    separator = ",\n";
  }
  std::printf("\n]}\n");
}

void print_table(const std::vector<Sample>& samples, int ranks) {
  std::printf("f32 sum in place, %d ranks; microseconds: median over the repetitions (min..max)\n",
              ranks);
  std::printf("%12s  %-12s %12s  %s\n", "bytes", "contender", "median", "range");
  std::map<std::pair<std::int64_t, std::string>, std::vector<Sample>> groups;
  for (const Sample& sample : samples) {
    groups[{sample.bytes, sample.contender}].push_back(sample);
  }
  for (const auto& [key, group] : groups) {
    std::vector<double> times;
    std::uint64_t wrong = 0;
    for (const Sample& sample : group) {
      times.push_back(sample.median_us);
      wrong += sample.wrong;
    }
    std::sort(times.begin(), times.end());
    std::printf("%12" PRId64 "  %-12s %12.2f  %.2f..%.2f%s\n", key.first, key.second.c_str(),
                times[times.size() / 2], times.front(), times.back(),
                wrong == 0 ? "" : "  WRONG RESULTS");
  }
}

}  // namespace

void print(const std::vector<Sample>& samples, int ranks, bool json) {
  if (json) {
    print_json(samples, ranks);
  } else {
    print_table(samples, ranks);
  }
  std::fflush(stdout);
}

bool any_wrong(const std::vector<Sample>& samples) {
  return std::any_of(samples.begin(), samples.end(),
                     [](const Sample& sample) { return sample.wrong != 0; });
}

}  // namespace ronde::bench
