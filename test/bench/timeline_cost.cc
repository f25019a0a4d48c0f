// SPDX-License-Identifier: Apache-2.0
// What a timeline costs: steps with the gradients of a ResNet-50, submitted one by one, with the
// timeline on and off in turns, in one job. Start it with mpirun. Asserts nothing; the last line is
// key=value: the medians of the turns, of the time and of the processor time of rank 0 (which a
// busy machine disturbs less, and which has what is written when the timeline stops).
//
//   timeline_cost FILE [turns] [steps]     each turn has so many steps without and so many with
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

#include "examples/perf/options/models.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Tensor {
  std::string name;
  std::vector<float> data;
};

std::vector<Tensor> gradients() {
  std::vector<Tensor> tensors;
  for (const ronde::perf::Gradient& gradient : ronde::perf::gradients_of("resnet50")) {
    tensors.push_back({gradient.name, std::vector<float>(gradient.elements, 1.0F)});
  }
  return tensors;
}

double cpu_us() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The time of a step in microseconds; values grow by the factor of a sum, so they are averaged.
double mean_step(ronde::Engine& engine, std::vector<Tensor>& tensors, int steps) {
  engine.barrier_blocking("begin");
  const auto begin = Clock::now();
  std::vector<ronde::Work> works;
  for (int step = 0; step < steps; ++step) {
    works.clear();
    for (Tensor& tensor : tensors) {
      works.push_back(engine.allreduce(tensor.name, std::span(tensor.data), ronde::average));
    }
    for (ronde::Work& work : works) work.wait();
  }
  const std::chrono::duration<double, std::micro> gone = Clock::now() - begin;
  return gone.count() / steps;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const std::string& file, int turns, int steps) {
  ronde::Engine engine;
  std::vector<Tensor> tensors = gradients();
  mean_step(engine, tensors, 3);
  std::vector<double> off;
  std::vector<double> on;
  std::vector<double> ratios;
  std::vector<double> cpu_off;
  std::vector<double> cpu_on;
  std::vector<double> cpu_ratios;
  for (int turn = 0; turn < turns; ++turn) {
    for (int half = 0; half < 2; ++half) {
      const bool traced = (turn + half) % 2 == 1;  // each begins every second time
      const double cpu = cpu_us();
      if (traced) engine.start_timeline(file);
      (traced ? on : off).push_back(mean_step(engine, tensors, steps));
      if (traced) engine.stop_timeline();
      (traced ? cpu_on : cpu_off).push_back((cpu_us() - cpu) / steps);
    }
    ratios.push_back(on.back() / off.back());
    cpu_ratios.push_back(cpu_on.back() / cpu_off.back());
  }
  if (engine.rank() == 0) {
    std::printf(
        "off_us=%.0f on_us=%.0f ratio=%.4f least=%.4f most=%.4f cpu_off_us=%.0f "
        "cpu_on_us=%.0f cpu_ratio=%.4f file_bytes=%ju\n",
        median(off), median(on), median(ratios), *std::min_element(ratios.begin(), ratios.end()),
        *std::max_element(ratios.begin(), ratios.end()), median(cpu_off), median(cpu_on),
        median(cpu_ratios), static_cast<std::uintmax_t>(std::filesystem::file_size(file)));
  }
  engine.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: timeline_cost FILE [turns] [steps]\n");
    return 2;
  }
  return run(argv[1], argc > 2 ? std::atoi(argv[2]) : 15, argc > 3 ? std::atoi(argv[3]) : 20);
} catch (const std::exception& error) {
  std::fprintf(stderr, "timeline_cost: %s\n", error.what());
  return 1;
}
