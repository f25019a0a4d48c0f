// SPDX-License-Identifier: Apache-2.0
// Turns times into numbers, and samples into a summary. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ronde::perf {

// By nearest rank: the smallest value that at least `share` of all values do not exceed. 0 for
// none.
[[nodiscard]] double percentile(std::vector<double> values, double share);
// The middle value, or the mean of the middle two where their number is even.
[[nodiscard]] double median(std::vector<double> values);
[[nodiscard]] double mean(const std::vector<double>& values);

// What is measured, without the contender. Two rows of one key can be compared.
struct Key {
  std::string operation;
  std::string model;  // empty: none
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::string dtype;
  std::string op;
  int root = -1;  // as nccl-tests writes "none"
  bool in_place = false;

  friend bool operator==(const Key&, const Key&) = default;
};

// One repetition of one contender.
struct Sample {
  Key key;
  std::string contender;
  std::uint64_t tensors = 1;
  std::uint64_t repetition = 0;
  std::uint64_t iterations = 0;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double mean_us = 0;
  double algbw = 0;  // GB/s, 10^9 bytes
  double busbw = 0;
  std::uint64_t wrong = 0;
  std::optional<double> c2c_before_ns;  // core-to-core round trip
  std::optional<double> c2c_after_ns;
};

struct Summary {
  Key key;
  std::string contender;
  std::uint64_t tensors = 1;
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  double mean_us = 0;
  double p99_us = 0;
  double algbw = 0;
  double busbw = 0;
  std::uint64_t wrong = 0;
  double ratio = 1;  // to Ronde: above 1 Ronde is faster
  double ratio_min = 1;
  double ratio_max = 1;
  std::optional<double> c2c_min_ns;
  std::optional<double> c2c_max_ns;
};

inline constexpr const char* kRonde = "ronde";

// Fills in the numbers that follow from the times of the iterations, in microseconds.
void add_times(Sample& sample, const std::vector<double>& times, double bus_factor);

// One summary for each key and contender, in the order of their first samples.
[[nodiscard]] std::vector<Summary> summarize(const std::vector<Sample>& samples);

// Whether the machine's speed changed while this was measured, as --help explains.
[[nodiscard]] bool unsteady(const Summary& summary);

}  // namespace ronde::perf
