// SPDX-License-Identifier: Apache-2.0
// Tests of the GPU plug-in over the fakes of CUDA and NCCL.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "test/device/cuda/fake_controls.h"
#include "test/device/device_job.h"

namespace ronde::device_test {

// Numbers of ronde.h.
constexpr std::int32_t kI16 = 3;
constexpr std::int32_t kF16 = 8;
constexpr std::int32_t kF32 = 10;
constexpr std::int32_t kBool = 12;
constexpr std::int32_t kAverage = 0;
constexpr std::int32_t kSum = 1;
constexpr std::int32_t kMin = 2;
constexpr std::int32_t kBitXor = 7;

inline const ronde_fake_controls& fakes() {
  static const ronde_fake_controls* const kFakes = [] {
    void* const library = ::dlopen(std::getenv("RONDE_DEVICE_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<ronde_fake_controls_entry_function>(
        ::dlsym(library, RONDE_FAKE_CONTROLS_ENTRY))();
  }();
  return *kFakes;
}

inline std::string trace() {
  std::string text(fakes().trace(nullptr, 0) + 1, '\0');
  fakes().trace(text.data(), text.size());
  text.pop_back();
  return text;
}

class CudaTest : public ::testing::Test {
 protected:
  CudaTest() { fakes().reset(); }
  ~CudaTest() override {
    fakes().reset();
    for (const auto& [name, value] : environment_) ::unsetenv(name.c_str());
  }
  void set_environment(const std::string& name, const std::string& value) {
    environment_[name] = value;
    ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::map<std::string, std::string> environment_;
};

// A batch that owns its tensors' descriptions.
struct Batch {
  explicit Batch(ronde_plugin_operation operation = RONDE_PLUGIN_ALLREDUCE) {
    batch.struct_size = sizeof batch;
    batch.operation = operation;
    batch.dtype = kF32;
    batch.op = kSum;
    batch.prescale = batch.postscale = 1.0;
  }
  // In place.
  void add(const DeviceMemory& memory, std::size_t elements, ronde_plugin_mark* ready = nullptr) {
    tensors.push_back({memory.get(), memory.get(), static_cast<std::int64_t>(elements), ready});
  }
  const ronde_plugin_batch& get() {
    batch.tensor_count = static_cast<std::int32_t>(tensors.size());
    batch.tensors = tensors.data();
    return batch;
  }

  ronde_plugin_batch batch{};
  std::vector<ronde_plugin_tensor> tensors;
};

// What a stream or an event has so far, as long as this lives.
class MarkOwner {
 public:
  MarkOwner(DeviceRank& rank, void* stream, void* event = nullptr)
      : rank_(rank), mark_(rank.mark(stream, event)) {}
  MarkOwner(const MarkOwner&) = delete;
  MarkOwner& operator=(const MarkOwner&) = delete;
  ~MarkOwner() { rank_.unmark(mark_); }
  [[nodiscard]] ronde_plugin_mark* get() const { return mark_; }

 private:
  DeviceRank& rank_;
  ronde_plugin_mark* const mark_;
};

// A rank's stream, gone when the test is.
class UserStream {
 public:
  UserStream() : kit_(*Device::instance().kit), stream_(kit_.make_stream()) {}
  UserStream(const UserStream&) = delete;
  UserStream& operator=(const UserStream&) = delete;
  ~UserStream() {
    kit_.synchronize(stream_);
    kit_.free_stream(stream_);
  }
  [[nodiscard]] void* get() const { return stream_; }
  void delay(std::int32_t milliseconds) const { kit_.delay(stream_, milliseconds); }

 private:
  const ronde_device_kit& kit_;
  void* const stream_;
};

inline std::vector<float> floats(std::size_t elements, float value) {
  return std::vector<float>(elements, value);
}

}  // namespace ronde::device_test
