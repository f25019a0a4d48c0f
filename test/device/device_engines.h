// SPDX-License-Identifier: Apache-2.0
// Engines with the plug-in under test, and tensors in the memory of its device.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tensors/submission.h"
#include "test/device/device_job.h"
#include "test/support/device_vector.h"
#include "test/support/engines.h"

namespace ronde::device_test {

inline testing::EngineOptions options_of_device() {
  testing::EngineOptions options;
  const char* const path = std::getenv("RONDE_DEVICE_PLUGIN");
  options.environment = {"RONDE_PLUGIN_PATH=" + std::string(path == nullptr ? "" : path)};
  return options;
}

inline std::byte* address(const DeviceMemory& memory) {
  return static_cast<std::byte*>(memory.get());
}

using testing::device_vector;

inline runtime::Submission device_allreduce(const std::string& name, const DeviceMemory& memory,
                                            std::int64_t elements, void* stream = nullptr,
                                            void* event = nullptr) {
  return device_vector(name, runtime::Operation::kAllreduce, elements, nullptr, memory.get(),
                       stream, event);
}

inline runtime::Submission device_barrier(const std::string& name, void* stream = nullptr) {
  runtime::Submission submission;
  submission.name = name;
  submission.place = "test.cc:4";
  submission.signature.operation = runtime::Operation::kDeviceBarrier;
  submission.signature.device = 0;
  submission.readiness = {{stream, nullptr}};
  return submission;
}

// What a work of this device holds.
inline std::vector<float> output_of(const runtime::Work& work) {
  std::vector<float> values(work.output.size() / sizeof(float));
  if (values.empty()) return values;
  Device::instance().kit->read(values.data(), work.output.data(), work.output.size(), nullptr);
  return values;
}

}  // namespace ronde::device_test
