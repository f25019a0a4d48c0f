// SPDX-License-Identifier: Apache-2.0
// The loop that takes the times: contenders take turns within each repetition, so that a machine
// that changes its mood changes it for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/bench/support/contender.h"
#include "test/bench/support/meeting.h"

namespace ronde::bench {

struct Sample {
  std::string contender;
  std::int64_t bytes = 0;
  int repetition = 0;
  double median_us = 0.0;  // over the iterations; of one call
  double min_us = 0.0;
  std::uint64_t wrong = 0;  // elements, of all ranks
};

// How a size is measured. Pure.
struct Schedule {
  // Calls between two readings of the clock, each on a buffer of its own: a single call of a few
  // nanoseconds cannot be timed, and a buffer that is used twice in a span is not rewritten.
  std::int64_t calls = 1;
  int iterations = 1;
  int warm_ups = 1;
};
[[nodiscard]] Schedule schedule_for(std::int64_t bytes, bool quick);

// The time of an iteration is from the first rank's begin to the last rank's end, by the number of
// calls. Buffers are rewritten before every iteration, and results checked after the last.
[[nodiscard]] std::vector<Sample> measure(Meeting& meeting, const Contenders& contenders,
                                          std::int64_t bytes, int repetitions, bool quick);
// The same where something else has used the caches before every call, as in a program that also
// computes: a memcpy of 1 MiB and a call of the next contender.
[[nodiscard]] std::vector<Sample> measure_cold(Meeting& meeting, const Contenders& contenders,
                                               std::int64_t bytes, int repetitions, bool quick);

}  // namespace ronde::bench
