// SPDX-License-Identifier: Apache-2.0
// How samples are paired with Ronde's of the same repetition, and reduced to a summary.
#include "examples/perf/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ronde::perf {

namespace {

// Returns Ronde's sample of the same repetition and key.
const Sample* ronde_beside(const std::vector<Sample>& samples, const Sample& sample) {
  for (const Sample& each : samples) {
    if (each.contender == kRonde && each.repetition == sample.repetition &&
        each.key == sample.key) {
      return &each;
    }
  }
  return nullptr;
}

void widen(Summary& summary, const std::optional<double>& c2c) {
  if (!c2c) return;
  summary.c2c_min_ns = summary.c2c_min_ns ? std::min(*summary.c2c_min_ns, *c2c) : *c2c;
  summary.c2c_max_ns = summary.c2c_max_ns ? std::max(*summary.c2c_max_ns, *c2c) : *c2c;
}

// `own`: the samples of one key and contender; not empty.
Summary summarize_one(const std::vector<Sample>& samples, const std::vector<const Sample*>& own) {
  const Sample& first = *own.front();
  Summary summary;
  summary.key = first.key;
  summary.contender = first.contender;
  summary.tensors = first.tensors;
  std::vector<double> p50;
  std::vector<double> p99;
  std::vector<double> means;
  std::vector<double> ratios;
  for (const Sample* sample : own) {
    p50.push_back(sample->p50_us);
    p99.push_back(sample->p99_us);
    means.push_back(sample->mean_us);
    summary.wrong += sample->wrong;
    const Sample* const ronde = ronde_beside(samples, *sample);
    if (ronde != nullptr && ronde->p50_us > 0) ratios.push_back(sample->p50_us / ronde->p50_us);
    widen(summary, sample->c2c_before_ns);
    widen(summary, sample->c2c_after_ns);
  }
  summary.median_us = median(p50);
  summary.min_us = *std::min_element(p50.begin(), p50.end());
  summary.max_us = *std::max_element(p50.begin(), p50.end());
  summary.mean_us = median(means);
  summary.p99_us = median(p99);
  if (summary.median_us > 0) {
    const double bus = first.algbw > 0 ? first.busbw / first.algbw : 1.0;
    summary.algbw = static_cast<double>(first.key.bytes) / (summary.median_us * 1e3);
    summary.busbw = summary.algbw * bus;
  }
  if (!ratios.empty()) {
    summary.ratio = median(ratios);
    summary.ratio_min = *std::min_element(ratios.begin(), ratios.end());
    summary.ratio_max = *std::max_element(ratios.begin(), ratios.end());
  }
  return summary;
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return values[std::min(index, values.size() - 1)];
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0.0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void add_times(Sample& sample, const std::vector<double>& times, double bus_factor) {
  sample.iterations = times.size();
  if (times.empty()) return;
  sample.min_us = *std::min_element(times.begin(), times.end());
  sample.p50_us = percentile(times, 0.5);
  sample.p99_us = percentile(times, 0.99);
  sample.mean_us = mean(times);
  if (sample.p50_us > 0)
    sample.algbw = static_cast<double>(sample.key.bytes) / (sample.p50_us * 1e3);
  sample.busbw = sample.algbw * bus_factor;
}

std::vector<Summary> summarize(const std::vector<Sample>& samples) {
  std::vector<std::vector<const Sample*>> groups;
  for (const Sample& sample : samples) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&sample](const auto& each) {
      return each.front()->contender == sample.contender && each.front()->key == sample.key;
    });
    if (group == groups.end()) {
      groups.push_back({&sample});
    } else {
      group->push_back(&sample);
    }
  }
  std::vector<Summary> result;
  result.reserve(groups.size());
  for (const auto& group : groups) result.push_back(summarize_one(samples, group));
  return result;
}

bool unsteady(const Summary& summary) {
  constexpr double kChange = 1.5;
  return summary.c2c_min_ns && summary.c2c_max_ns &&
         *summary.c2c_max_ns > kChange * *summary.c2c_min_ns;
}

}  // namespace ronde::perf
