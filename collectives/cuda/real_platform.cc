// SPDX-License-Identifier: Apache-2.0
// The plug-in as it is installed: CUDA's runtime, linked in; what the driver alone can do, looked
// up when the program runs, so that the library loads where there is no driver.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "collectives/cuda/platform.h"
#include "collectives/cuda/plugin_table.h"

namespace ronde::collectives::cuda {

namespace {

using base::Code;
using base::Result;
using base::Status;

// The error is taken back from CUDA: others that ask for the last one mean theirs.
Status checked(const char* doing, cudaError_t error) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kSystem;
  return Status::error(code, std::string("CUDA, ") + doing + ": " + cudaGetErrorString(error));
}

Status unsupported(const std::string& why) { return Status::error(Code::kUnsupported, why); }

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Functions of the driver that the runtime has no like of.
struct Driver {
  CUresult(CUDAAPI* device_get)(CUdevice*, int) = nullptr;
  CUresult(CUDAAPI* primary_retain)(CUcontext*, CUdevice) = nullptr;
  CUresult(CUDAAPI* primary_release)(CUdevice) = nullptr;
  CUresult(CUDAAPI* push)(CUcontext) = nullptr;
  CUresult(CUDAAPI* pop)(CUcontext*) = nullptr;

  template <class Function>
  static bool find(Function*& function, const char* name, unsigned version) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult outcome{};
    const auto error =
        cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &outcome);
    function = reinterpret_cast<Function*>(found);
    return error == cudaSuccess && found != nullptr;
  }
  bool find_all() {
    return find(device_get, "cuDeviceGet", 2000) &&
           find(primary_retain, "cuDevicePrimaryCtxRetain", 7000) &&
           find(primary_release, "cuDevicePrimaryCtxRelease", 11000) &&
           find(push, "cuCtxPushCurrent", 4000) && find(pop, "cuCtxPopCurrent", 4000);
  }
};

// "580.65.06", as the kernel has it.
std::string driver_text(int driver) {
  std::string version;
  std::ifstream("/sys/module/nvidia/version") >> version;
  return version.empty() ? "driver for CUDA " + cuda_version_text(driver) : "driver " + version;
}

class RealCuda final : public CudaApi {
 public:
  ~RealCuda() override {
    if (context_ != nullptr) driver_.primary_release(device_);
  }

  Result<DeviceInfo> start() override {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
      return unsupported("there is no NVIDIA driver (libcuda.so.1) on this machine");
    }
    if (driver / 1000 < CUDART_VERSION / 1000) {
      return unsupported("the NVIDIA driver is one for CUDA " + cuda_version_text(driver) +
                         ", and this plug-in needs " + cuda_version_text(CUDART_VERSION));
    }
    int count = 0;
    if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
      return unsupported(std::string("there is no CUDA device: ") + cudaGetErrorString(error));
    }
    RONDE_RETURN_IF_ERROR(checked("asking for the device", cudaGetDevice(&ordinal_)));
    RONDE_RETURN_IF_ERROR(take_context());
    RONDE_RETURN_IF_ERROR(checked(
        "asking for multiprocessors",
        cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal_)));
    std::array<char, 32> bus_id{};
    RONDE_RETURN_IF_ERROR(
        checked("asking for the bus id", cudaDeviceGetPCIBusId(bus_id.data(), 31, ordinal_)));
    cudaDeviceProp properties{};
    RONDE_RETURN_IF_ERROR(
        checked("asking for the name", cudaGetDeviceProperties(&properties, ordinal_)));
    return DeviceInfo{ordinal_, bus_id.data(),
                      "CUDA " + cuda_version_text(CUDART_VERSION) + ", " + driver_text(driver),
                      properties.name};
  }

  // Of the driver: cudaSetDevice() back would start the device that was current but never used.
  Status enter() override {
    if (driver_.push(context_) == CUDA_SUCCESS) return {};
    return Status::error(Code::kClosed, "the CUDA driver is shutting down");
  }
  void leave() override {
    CUcontext ignored = nullptr;
    driver_.pop(&ignored);
  }

  Result<Stream> make_stream(bool urgent) override {
    int least = 0;
    int greatest = 0;
    RONDE_RETURN_IF_ERROR(
        checked("asking for priorities", cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    Stream stream = nullptr;
    RONDE_RETURN_IF_ERROR(checked(
        "making a stream",
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least)));
    return stream;
  }
  void destroy_stream(Stream stream) override { (void)cudaStreamDestroy(stream); }
  Result<bool> is_idle(Stream stream) override {
    return is_done("running a stream", cudaStreamQuery(stream));
  }
  Result<bool> is_captured(Stream stream) override {
    auto state = cudaStreamCaptureStatusNone;
    const auto error = cudaStreamIsCapturing(stream, &state);
    // The default stream, while another one that it waits for is captured.
    if (error == cudaErrorStreamCaptureImplicit) {
      (void)cudaGetLastError();
      return true;
    }
    RONDE_RETURN_IF_ERROR(checked("asking for capture", error));
    return state != cudaStreamCaptureStatusNone;
  }
  Result<int> device_of(Stream stream) override {
    int device = 0;
    RONDE_RETURN_IF_ERROR(
        checked("asking for a stream's device", cudaStreamGetDevice(stream, &device)));
    return device;
  }

  Result<Event> make_event() override {
    Event event = nullptr;
    RONDE_RETURN_IF_ERROR(
        checked("making an event", cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    return event;
  }
  void destroy_event(Event event) override { (void)cudaEventDestroy(event); }
  Status record(Event event, Stream stream) override {
    return checked("recording an event", cudaEventRecord(event, stream));
  }
  Status wait(Stream stream, Event event) override {
    return checked("waiting for an event", cudaStreamWaitEvent(stream, event, 0));
  }
  Result<bool> is_over(Event event) override {
    return is_done("running a batch", cudaEventQuery(event));
  }

  Result<void*> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    RONDE_RETURN_IF_ERROR(checked("allocating device memory", cudaMalloc(&memory, bytes)));
    return memory;
  }
  void free(void* memory) override { (void)cudaFree(memory); }
  Result<void*> allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    RONDE_RETURN_IF_ERROR(checked("allocating pinned host memory",
                                  cudaHostAlloc(&memory, bytes, cudaHostAllocPortable)));
    return memory;
  }
  void free_host(void* memory) override { (void)cudaFreeHost(memory); }
  Result<MemoryPlace> place_of(const void* pointer) override {
    cudaPointerAttributes attributes{};
    RONDE_RETURN_IF_ERROR(
        checked("asking what a pointer is", cudaPointerGetAttributes(&attributes, pointer)));
    if (attributes.type == cudaMemoryTypeDevice) {
      return MemoryPlace{MemoryKind::kDevice, attributes.device};
    }
    if (attributes.type == cudaMemoryTypeManaged) {
      return MemoryPlace{MemoryKind::kManaged, std::max(attributes.device, 0)};
    }
    return MemoryPlace{};
  }

  Status copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return checked("copying", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  }
  Status call(Stream stream, void (*function)(void*), void* argument) override {
    return checked("calling the host", cudaLaunchHostFunc(stream, function, argument));
  }
  Status pack(std::span<const fusion::PackPiece> pieces, const fusion::cuda::PackKind& kind,
              Stream stream) override {
    return checked("packing", fusion::cuda::pack(pieces, kind, multiprocessors_, stream));
  }

 private:
  Status take_context() {
    if (!driver_.find_all()) {
      (void)cudaGetLastError();
      return unsupported("the NVIDIA driver lacks a function");
    }
    if (driver_.device_get(&device_, ordinal_) != CUDA_SUCCESS ||
        driver_.primary_retain(&context_, device_) != CUDA_SUCCESS) {
      context_ = nullptr;
      return unsupported("device " + std::to_string(ordinal_) + " cannot be used");
    }
    return {};
  }

  static Result<bool> is_done(const char* doing, cudaError_t error) {
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    RONDE_RETURN_IF_ERROR(checked(doing, error));
    return true;
  }

  Driver driver_;
  int ordinal_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int multiprocessors_ = 0;
};

}  // namespace

std::unique_ptr<CudaApi> make_cuda() { return std::make_unique<RealCuda>(); }

Result<NcclApi> find_nccl() { return load_nccl(); }

}  // namespace ronde::collectives::cuda

extern "C" __attribute__((visibility("default"))) const ronde_plugin* ronde_plugin_entry() {
  return &ronde::collectives::cuda::plugin_table();
}
