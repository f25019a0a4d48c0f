// SPDX-License-Identifier: Apache-2.0
// What the parts of the conformance suite share: batches, and values that are small whole numbers,
// so that every order of summing gives the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "test/device/device_job.h"

namespace ronde::device_test {

// Numbers of ronde.h.
inline constexpr std::int32_t kI32 = 5;
inline constexpr std::int32_t kI64 = 7;
inline constexpr std::int32_t kF32 = 10;
inline constexpr std::int32_t kF64 = 11;
inline constexpr std::int32_t kAverage = 0;
inline constexpr std::int32_t kSum = 1;
inline constexpr std::int32_t kMin = 2;
inline constexpr std::int32_t kMax = 3;
inline constexpr std::int32_t kProduct = 4;
inline constexpr std::int32_t kToBf16 = 1;
inline constexpr std::int32_t kToF16 = 2;

template <class T>
constexpr std::int32_t kDType = 0;
template <>
constexpr std::int32_t kDType<std::int32_t> = kI32;
template <>
constexpr std::int32_t kDType<std::int64_t> = kI64;
template <>
constexpr std::int32_t kDType<float> = kF32;
template <>
constexpr std::int32_t kDType<double> = kF64;

inline ronde_plugin_batch batch_of(ronde_plugin_operation operation,
                                   const std::vector<ronde_plugin_tensor>& tensors,
                                   std::int32_t dtype = kF32) {
  ronde_plugin_batch batch{};
  batch.struct_size = sizeof batch;
  batch.operation = operation;
  batch.dtype = dtype;
  batch.op = kSum;
  batch.tensor_count = static_cast<std::int32_t>(tensors.size());
  batch.tensors = tensors.data();
  batch.prescale = batch.postscale = 1.0;
  return batch;
}

inline ronde_plugin_tensor tensor_of(const void* input, void* output, std::size_t elements,
                                     ronde_plugin_mark* ready = nullptr) {
  return {input, output, static_cast<std::int64_t>(elements), ready};
}

// 1 to 4, by rank and place.
template <class T>
std::vector<T> contribution(std::int32_t rank, std::size_t elements) {
  std::vector<T> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<T>(1 + (i + static_cast<std::size_t>(rank)) % 4);
  }
  return values;
}

inline double folded(std::int32_t op, std::int32_t ranks, std::size_t place) {
  double result = op == kProduct || op == kMin ? 1 : 0;
  if (op == kMin) result = 100;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const auto value = static_cast<double>(1 + (place + static_cast<std::size_t>(rank)) % 4);
    if (op == kMin) result = std::min(result, value);
    if (op == kMax) result = std::max(result, value);
    if (op == kProduct) result *= value;
    if (op == kSum || op == kAverage) result += value;
  }
  return op == kAverage ? result / ranks : result;
}

class Conformance : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const Device& device = Device::instance();
    ASSERT_NE(device.plugin, nullptr) << "RONDE_DEVICE_PLUGIN names no plug-in";
    ASSERT_NE(device.kit, nullptr) << "the plug-in has no kit";
  }
  DeviceJob job_{GetParam()};
};

}  // namespace ronde::device_test
