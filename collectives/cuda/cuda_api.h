// SPDX-License-Identifier: Apache-2.0
// What this back end needs of the CUDA runtime, as an interface, so that its logic is tested on a
// machine without a GPU. Errors have the words of CUDA; kUnsupported: there is no device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"
#include "fusion/cuda/pack.cuh"
#include "fusion/tiles.h"

namespace ronde::collectives::cuda {

using Stream = cudaStream_t;
using Event = cudaEvent_t;

struct DeviceInfo {
  int device = 0;
  std::string bus_id;    // on PCI: "0000:3b:00.0"
  std::string versions;  // "CUDA 13.0, driver 580.65"
  std::string name;      // "NVIDIA H200"
};

enum class MemoryKind { kHost, kDevice, kManaged };
struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  int device = -1;
};

// One device, for one engine. Thread safety: any thread may call all functions but start(); it
// calls those below enter() between enter() and leave().
class CudaApi {
 public:
  CudaApi() = default;
  CudaApi(const CudaApi&) = delete;
  CudaApi& operator=(const CudaApi&) = delete;
  virtual ~CudaApi() = default;

  // Is called first: takes the device that is the caller's current one, or, where the caller has
  // chosen none, the one of this rank among the ranks of the host, which becomes its current one.
  virtual base::Result<DeviceInfo> start(int rank_on_host) = 0;

  // Makes the device this thread's current one, and allows the thread all calls while another one
  // captures a stream of its own (CUDA's capture mode "relaxed"). leave(), with the mode that this
  // returns, restores exactly what was before. An error means that the driver is shutting down and
  // cannot be called any more.
  virtual base::Result<cudaStreamCaptureMode> enter() = 0;
  virtual void leave(cudaStreamCaptureMode before) = 0;

  // Makes a stream that does not wait for the default one, and has priority on the device: streams
  // of another priority share no queue of the hardware with those of the program.
  virtual base::Result<Stream> make_stream() = 0;
  virtual void destroy_stream(Stream stream) = 0;
  virtual base::Result<bool> is_idle(Stream stream) = 0;
  virtual base::Result<bool> is_captured(Stream stream) = 0;
  virtual base::Result<int> device_of(Stream stream) = 0;

  // Makes an event without a time.
  virtual base::Result<Event> make_event() = 0;
  virtual void destroy_event(Event event) = 0;
  virtual base::Status record(Event event, Stream stream) = 0;
  virtual base::Status wait(Stream stream, Event event) = 0;
  virtual base::Result<bool> is_over(Event event) = 0;

  // Freeing this memory waits for all that runs on the device.
  virtual base::Result<void*> allocate(std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  // Allocates memory that may outlive this object; free_result() of platform.h frees it. It is
  // usable when the stream has come this far, and waits for nothing else.
  virtual base::Result<void*> allocate_in(Stream stream, std::size_t bytes) = 0;
  virtual void free_in(Stream stream, void* memory) = 0;
  virtual base::Result<void*> allocate_host(std::size_t bytes) = 0;
  virtual void free_host(void* memory) = 0;
  virtual base::Result<MemoryPlace> place_of(const void* pointer) = 0;

  // Puts a copy into a stream.
  virtual base::Status copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;
  virtual base::Status call(Stream stream, void (*function)(void*), void* argument) = 0;
  virtual base::Status pack(std::span<const fusion::PackPiece> pieces,
                            const fusion::cuda::PackKind& kind, Stream stream) = 0;
};

// As long as this lives the device is this thread's current one, and no capture elsewhere disturbs
// it. Thread safety: belongs to the thread that made it.
class DeviceScope {
 public:
  explicit DeviceScope(CudaApi& cuda) : cuda_(cuda) {
    const base::Result<cudaStreamCaptureMode> before = cuda.enter();
    status_ = before.status();
    if (before.ok()) before_ = *before;
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() {
    if (status_.ok()) cuda_.leave(before_);
  }
  [[nodiscard]] const base::Status& status() const { return status_; }

 private:
  CudaApi& cuda_;
  cudaStreamCaptureMode before_ = cudaStreamCaptureModeGlobal;
  base::Status status_;
};

}  // namespace ronde::collectives::cuda
