// SPDX-License-Identifier: Apache-2.0
// How functions of the driver are looked up and called.
#include "collectives/cuda/driver_functions.h"

#include <string>

namespace ronde::collectives::cuda {

using base::Code;
using base::Status;

namespace {

// Looks functions up, and remembers the first that is missing.
class Finder {
 public:
  template <class Function>
  void find(Function*& function, const char* name, unsigned version) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult outcome{};
    const auto error =
        cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &outcome);
    if (error != cudaSuccess) (void)cudaGetLastError();
    const bool there = error == cudaSuccess && outcome == cudaDriverEntryPointSuccess;
    function = there ? reinterpret_cast<Function*>(found) : nullptr;
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  std::string missing_;
};

}  // namespace

base::Result<DriverFunctions> DriverFunctions::find() {
  DriverFunctions functions;
  Finder finder;
  finder.find(functions.device_get, "cuDeviceGet", 2000);
  finder.find(functions.primary_retain, "cuDevicePrimaryCtxRetain", 7000);
  finder.find(functions.primary_release, "cuDevicePrimaryCtxRelease", 11000);
  finder.find(functions.primary_state, "cuDevicePrimaryCtxGetState", 7000);
  finder.find(functions.get_current, "cuCtxGetCurrent", 4000);
  finder.find(functions.push, "cuCtxPushCurrent", 4000);
  finder.find(functions.pop, "cuCtxPopCurrent", 4000);
  if (finder.missing().empty()) return functions;
  return Status::error(Code::kUnsupported, "the NVIDIA driver has no function " + finder.missing());
}

PrimaryContext::PrimaryContext(const DriverFunctions& driver, int ordinal) : driver_(driver) {
  unsigned flags = 0;
  int active = 0;
  if (driver_.device_get(&device_, ordinal) != CUDA_SUCCESS ||
      driver_.primary_state(device_, &flags, &active) != CUDA_SUCCESS || active == 0) {
    return;
  }
  CUcontext context = nullptr;
  if (driver_.primary_retain(&context, device_) != CUDA_SUCCESS) return;
  if (driver_.push(context) == CUDA_SUCCESS) {
    context_ = context;
  } else {
    (void)driver_.primary_release(device_);
  }
}

PrimaryContext::~PrimaryContext() {
  if (context_ == nullptr) return;
  CUcontext ignored = nullptr;
  (void)driver_.pop(&ignored);
  (void)driver_.primary_release(device_);
}

}  // namespace ronde::collectives::cuda
