// SPDX-License-Identifier: Apache-2.0
// What the measurements of gpu_speed share: how results are printed, and the times of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "examples/perf/options/models.h"
#include "test/device/device.h"
#include "test/gpu/cuda.h"

namespace ronde::gpu_test {

// The plug-in packs what is smaller, and leaves the rest where it is.
inline constexpr std::size_t kPackBelow = 1 << 20;

inline void print(const std::string& name, double value, const char* format) {
  std::printf("result %s=", name.c_str());
  std::printf(format, value);
  std::printf("\n");
}
inline void print_us(const std::string& name, double seconds) {
  print(name + "_us", seconds * 1e6, "%.1f");
}

// Elements of a model's gradients; or of those that are packed alone.
inline std::vector<std::size_t> sizes_of_model(const std::string& model, bool small_alone) {
  std::vector<std::size_t> sizes;
  for (const perf::Gradient& gradient : perf::gradients_of(model)) {
    if (small_alone && gradient.elements * sizeof(float) >= kPackBelow) continue;
    sizes.push_back(gradient.elements);
  }
  return sizes;
}

// A stream and two events: the times of what is put into it.
//
// Thread safety: one thread.
class Stopwatch {
 public:
  Stopwatch() {
    (void)good(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    (void)good(cudaEventCreate(&begin_), "event");
    (void)good(cudaEventCreate(&end_), "event");
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
    (void)cudaStreamDestroy(stream_);
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

  // Seconds of the device; the shortest of some runs.
  template <class Run>
  double best(Run run) const {
    float best = 1e9F;
    for (int i = 0; i < 20; ++i) {
      // The stream is held back until the host has put all of the run into it.
      device_test::Device::instance().kit->delay(stream_, 2);
      (void)cudaEventRecord(begin_, stream_);
      run();
      (void)cudaEventRecord(end_, stream_);
      (void)good(cudaEventSynchronize(end_), "running");
      float milliseconds = 0;
      (void)cudaEventElapsedTime(&milliseconds, begin_, end_);
      best = std::min(best, milliseconds);
    }
    return static_cast<double>(best) / 1e3;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Packing and unpacking, beside copies of the same bytes; returns an exit code.
int measure_packs();

}  // namespace ronde::gpu_test
