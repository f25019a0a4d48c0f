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

inline std::vector<float> floats(std::size_t elements, float value) {
  return std::vector<float>(elements, value);
}

}  // namespace ronde::device_test
