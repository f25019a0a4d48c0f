// SPDX-License-Identifier: Apache-2.0
// Functions of CUDA's driver without a counterpart in its runtime. They are looked up when the
// program runs, so that the plug-in loads where there is no driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/status.h"

namespace ronde::collectives::cuda {

struct DriverFunctions {
  CUresult(CUDAAPI* device_get)(CUdevice*, int) = nullptr;
  CUresult(CUDAAPI* primary_retain)(CUcontext*, CUdevice) = nullptr;
  CUresult(CUDAAPI* primary_release)(CUdevice) = nullptr;
  CUresult(CUDAAPI* primary_state)(CUdevice, unsigned*, int*) = nullptr;
  CUresult(CUDAAPI* get_current)(CUcontext*) = nullptr;
  CUresult(CUDAAPI* push)(CUcontext) = nullptr;
  CUresult(CUDAAPI* pop)(CUcontext*) = nullptr;

  // Looks all of them up; kUnsupported names the first that the driver lacks.
  static base::Result<DriverFunctions> find();
};

// As long as this lives this thread may make all calls while another one captures a stream.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// As long as this lives, a device that is in use is this thread's current one. It calls the driver,
// because going back by cudaSetDevice() would start a device that was current but never used.
class PrimaryContext {
 public:
  PrimaryContext(const DriverFunctions& driver, int ordinal);
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();
  // Returns false if the device is not in use (any more), or the driver is shutting down.
  [[nodiscard]] bool is_current() const { return context_ != nullptr; }

 private:
  const DriverFunctions& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace ronde::collectives::cuda
