// SPDX-License-Identifier: Apache-2.0
// Batches for the plug-in, and what they must come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "test/gpu/gpu_rank.h"

namespace ronde::gpu_test {

// Numbers of ronde.h.
inline constexpr std::int32_t kI32 = 5;
inline constexpr std::int32_t kF32 = 10;
inline constexpr std::int32_t kF64 = 11;

using Floats = GpuVector<float>;

// Tensors that are ready behind what is in a stream now, or behind an event.
//
// Thread safety: none.
class Batch {
 public:
  explicit Batch(GpuRank& rank, ronde_plugin_operation operation, std::int32_t dtype = kF32)
      : rank_(rank) {
    batch.struct_size = sizeof batch;
    batch.operation = operation;
    batch.dtype = dtype;
    batch.op = 1;
    batch.prescale = batch.postscale = 1.0;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() {
    for (ronde_plugin_mark* const mark : marks_) rank_.plugin().unmark(rank_.engine(), mark);
  }

  Batch& add(const void* input, void* output, std::size_t elements, void* stream = nullptr,
             void* event = nullptr) {
    ronde_plugin_mark* mark = nullptr;
    if (stream != nullptr || event != nullptr) {
      mark = rank_.mark(stream, event);
      if (mark != nullptr) marks_.push_back(mark);
    }
    tensors_.push_back({input, output, static_cast<std::int64_t>(elements), mark});
    batch.tensor_count = static_cast<std::int32_t>(tensors_.size());
    batch.tensors = tensors_.data();
    return *this;
  }
  bool run() { return rank_.finish(rank_.execute(batch)) == RONDE_PLUGIN_OK; }

  ronde_plugin_batch batch{};

 private:
  GpuRank& rank_;
  std::vector<ronde_plugin_tensor> tensors_;
  std::vector<ronde_plugin_mark*> marks_;
};

// 1 to 4, by rank and place: sums are exact.
template <class T>
std::vector<T> contribution(int rank, std::size_t elements) {
  std::vector<T> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<T>(1 + (i + static_cast<std::size_t>(rank)) % 4);
  }
  return values;
}

// op: a number of ronde.h.
template <class T>
std::vector<T> folded(std::int32_t op, int ranks, std::size_t elements, double scale) {
  std::vector<T> result(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    double value = op == 4 ? 1 : op == 2 ? 100 : 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto one = static_cast<double>(1 + (i + static_cast<std::size_t>(rank)) % 4);
      if (op == 4) value *= one;
      if (op == 2) value = one < value ? one : value;
      if (op == 3) value = one > value ? one : value;
      if (op < 2) value += one;
    }
    result[i] = static_cast<T>((op == 0 ? value / ranks : value) * scale);
  }
  return result;
}

template <class T>
bool about(const std::vector<T>& got, const std::vector<T>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    const double limit = std::is_integral_v<T> ? 0 : 1e-5 * static_cast<double>(expected[i]);
    if (apart > limit || apart < -limit) return false;
  }
  return got.size() == expected.size();
}

// Puts work into the stream that takes so long.
inline void sleep_in_stream(cudaStream_t stream, int milliseconds) {
  static constexpr auto kSleep = [](void* how_long) {
    ::usleep(static_cast<useconds_t>(reinterpret_cast<std::uintptr_t>(how_long)) * 1000);
  };
  (void)good(cudaLaunchHostFunc(stream, kSleep,
                                reinterpret_cast<void*>(static_cast<std::uintptr_t>(milliseconds))),
             "a delay");
}

}  // namespace ronde::gpu_test
