// SPDX-License-Identifier: Apache-2.0
// Functions of CUDA's driver that its runtime has no like of, looked up when the program runs, so
// that the plug-in loads where there is no driver.
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
  CUresult(CUDAAPI* push)(CUcontext) = nullptr;
  CUresult(CUDAAPI* pop)(CUcontext*) = nullptr;

  // kUnsupported names the first that the driver lacks.
  static base::Result<DriverFunctions> find();
};

// This thread may call everything while another one captures a stream of its own.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A device that is in use is this thread's current one as long as this lives. Of the driver:
// cudaSetDevice() back would start the device that was current but never used.
class PrimaryContext {
 public:
  PrimaryContext(const DriverFunctions& driver, int ordinal);
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();
  // False: nothing runs on that device (any more), or the driver is shutting down.
  [[nodiscard]] bool is_current() const { return context_ != nullptr; }

 private:
  const DriverFunctions& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace ronde::collectives::cuda
