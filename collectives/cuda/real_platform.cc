// SPDX-License-Identifier: Apache-2.0
// CUDA as the installed plug-in uses it, with CUDA's runtime linked in.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <mutex>

#include "collectives/cuda/driver_functions.h"
#include "collectives/cuda/driver_version.h"
#include "collectives/cuda/platform.h"
#include "collectives/cuda/plugin_table.h"

namespace ronde::collectives::cuda {

namespace {

using base::Code;
using base::Result;
using base::Status;

// Clears the error in CUDA, so that the program does not find ours as its last one.
Status checked(const char* action, cudaError_t error) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kSystem;
  return Status::error(code, std::string("CUDA, ") + action + ": " + cudaGetErrorString(error));
}

// Some calls may fail without consequence: their error must not stay for the next one to find.
bool worked(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess;
}

Status unsupported(const std::string& why) { return Status::error(Code::kUnsupported, why); }

// Returns the driver's version as the kernel knows it: "580.65.06".
std::string driver_text(int driver) {
  std::string version;
  std::ifstream("/sys/module/nvidia/version") >> version;
  return version.empty() ? "driver for CUDA " + cuda_version_text(driver) : "driver " + version;
}

class RealCuda final : public CudaApi {
 public:
  ~RealCuda() override {
    if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);  // CUDA frees it with its last memory
    if (context_ != nullptr) driver_.primary_release(device_);
  }

  Result<DeviceInfo> start(int rank_on_host) override {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    RONDE_RETURN_IF_ERROR(check_driver(driver, CUDART_VERSION));
    const RelaxedCapture relaxed;
    int count = 0;
    if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
      (void)cudaGetLastError();
      return unsupported(std::string("there is no CUDA device: ") + cudaGetErrorString(error));
    }
    RONDE_RETURN_IF_ERROR(take_device(rank_on_host, count));
    RONDE_RETURN_IF_ERROR(checked(
        "asking for multiprocessors",
        cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal_)));
    std::array<char, 32> bus_id{};
    RONDE_RETURN_IF_ERROR(
        checked("asking for the bus id", cudaDeviceGetPCIBusId(bus_id.data(), 31, ordinal_)));
    cudaDeviceProp properties{};
    RONDE_RETURN_IF_ERROR(
        checked("asking for the name", cudaGetDeviceProperties(&properties, ordinal_)));
    RONDE_RETURN_IF_ERROR(load_kernels(properties));
    return DeviceInfo{ordinal_, bus_id.data(),
                      "CUDA " + cuda_version_text(CUDART_VERSION) + ", " + driver_text(driver),
                      properties.name};
  }

  // This calls the driver: going back by cudaSetDevice() would start a device that was current but
  // never used.
  Result<cudaStreamCaptureMode> enter() override {
    const Status gone = Status::error(Code::kClosed, "the CUDA driver is shutting down");
    if (driver_.push(context_) != CUDA_SUCCESS) return gone;
    auto mode = cudaStreamCaptureModeRelaxed;
    if (cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess) return mode;
    CUcontext ignored = nullptr;
    driver_.pop(&ignored);
    return gone;
  }
  void leave(cudaStreamCaptureMode before) override {
    (void)cudaThreadExchangeStreamCaptureMode(&before);
    CUcontext ignored = nullptr;
    driver_.pop(&ignored);
  }

  Result<Stream> make_stream() override {
    int least = 0;
    int greatest = 0;
    RONDE_RETURN_IF_ERROR(
        checked("asking for priorities", cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    Stream stream = nullptr;
    RONDE_RETURN_IF_ERROR(checked(
        "making a stream", cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest)));
    return stream;
  }
  void destroy_stream(Stream stream) override { (void)worked(cudaStreamDestroy(stream)); }
  Result<bool> is_idle(Stream stream) override {
    return is_done("running a stream", cudaStreamQuery(stream));
  }
  Result<bool> is_captured(Stream stream) override {
    auto state = cudaStreamCaptureStatusNone;
    const auto error = cudaStreamIsCapturing(stream, &state);
    // This is the default stream, while another one that it waits for is captured.
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
  void destroy_event(Event event) override { (void)worked(cudaEventDestroy(event)); }
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
  void free(void* memory) override { (void)worked(cudaFree(memory)); }
  Result<void*> allocate_in(Stream stream, std::size_t bytes) override {
    {
      const std::lock_guard lock(pool_mutex_);
      if (pool_ == nullptr) RONDE_RETURN_IF_ERROR(make_pool());
    }
    void* memory = nullptr;
    RONDE_RETURN_IF_ERROR(checked("allocating device memory",
                                  cudaMallocFromPoolAsync(&memory, bytes, pool_, stream)));
    return memory;
  }
  void free_in(Stream stream, void* memory) override {
    (void)worked(cudaFreeAsync(memory, stream));
  }
  Result<void*> allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    RONDE_RETURN_IF_ERROR(checked("allocating pinned host memory",
                                  cudaHostAlloc(&memory, bytes, cudaHostAllocPortable)));
    return memory;
  }
  void free_host(void* memory) override { (void)worked(cudaFreeHost(memory)); }
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
  // The device that is current in this thread; where the program has chosen none the ranks of a
  // host take them in turns, and this thread gets its own.
  Status take_device(int rank_on_host, int count) {
    RONDE_ASSIGN_OR_RETURN(driver_, DriverFunctions::find());
    CUcontext chosen = nullptr;
    if (driver_.get_current(&chosen) == CUDA_SUCCESS && chosen != nullptr) {
      RONDE_RETURN_IF_ERROR(checked("asking for the device", cudaGetDevice(&ordinal_)));
    } else {
      ordinal_ = rank_on_host % count;
      RONDE_RETURN_IF_ERROR(checked("taking a device", cudaSetDevice(ordinal_)));
    }
    if (driver_.device_get(&device_, ordinal_) != CUDA_SUCCESS ||
        driver_.primary_retain(&context_, device_) != CUDA_SUCCESS) {
      context_ = nullptr;
      return unsupported("device " + std::to_string(ordinal_) + " cannot be used");
    }
    return {};
  }

  // Also where kernels are loaded lazily, as CUDA does by default: the first batch must not do it,
  // behind a kernel that waits for other ranks.
  Status load_kernels(const cudaDeviceProp& properties) {
    const DeviceScope scope(*this);
    RONDE_RETURN_IF_ERROR(scope.status());
    if (const auto error = fusion::cuda::prepare(); error != cudaSuccess) {
      (void)cudaGetLastError();
      return unsupported(std::string("there is no code for ") + properties.name + " (compute " +
                         std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                         "): " + cudaGetErrorString(error) +
                         ": build with RONDE_CUDA_ARCHITECTURES");
    }
    return {};
  }

  // Makes a pool apart from the device's, which the program may use, so that no allocation waits
  // until another stream has freed its memory. Results are allocated in every step, so some memory
  // stays in the pool: taking it from the device again costs more than the collective.
  Status make_pool() {
    int supported = 0;
    RONDE_RETURN_IF_ERROR(
        checked("asking for memory pools",
                cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, ordinal_)));
    if (supported == 0) {
      return Status::error(Code::kSystem, "this device, or its driver, has no memory pools");
    }
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, ordinal_};
    RONDE_RETURN_IF_ERROR(checked("making a memory pool", cudaMemPoolCreate(&pool_, &properties)));
    int never = 0;
    RONDE_RETURN_IF_ERROR(
        checked("setting up a memory pool",
                cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &never)));
    std::uint64_t kept = kKeptBytes;
    (void)worked(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept));
    let_peers_in();
    return {};
  }

  // NCCL reads the memory of ranks in the same process directly, but memory of a pool is at first
  // accessible to its own device alone.
  void let_peers_in() {
    int count = 0;
    (void)worked(cudaGetDeviceCount(&count));
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      if (peer == ordinal_ || !worked(cudaDeviceCanAccessPeer(&can, peer, ordinal_)) || can == 0) {
        continue;
      }
      // Only devices that this process uses get access; the others must not be started.
      const PrimaryContext used(driver_, peer);
      if (!used.is_current()) continue;
      cudaMemAccessDesc access{};
      access.location = {cudaMemLocationTypeDevice, peer};
      access.flags = cudaMemAccessFlagsProtReadWrite;
      (void)worked(cudaMemPoolSetAccess(pool_, &access, 1));
    }
  }

  static Result<bool> is_done(const char* action, cudaError_t error) {
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    RONDE_RETURN_IF_ERROR(checked(action, error));
    return true;
  }

  static constexpr std::uint64_t kKeptBytes = std::uint64_t{64} << 20;

  DriverFunctions driver_;
  int ordinal_ = 0;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int multiprocessors_ = 0;
  std::mutex pool_mutex_;
  cudaMemPool_t pool_ = nullptr;  // made for the first result
};

// Whether the default stream can free memory without breaking a capture of the program.
bool is_default_stream_free() {
  auto state = cudaStreamCaptureStatusNone;
  return worked(cudaStreamIsCapturing(cudaStreamLegacy, &state)) &&
         state == cudaStreamCaptureStatusNone;
}

}  // namespace

std::unique_ptr<CudaApi> make_cuda() { return std::make_unique<RealCuda>(); }

Result<NcclApi> find_nccl() { return load_nccl(); }

// Frees in the default stream, after what the program has put into its ordinary streams, which may
// read the memory. cudaFree() would wait for the whole device, other ranks included.
void free_result(int device, void* memory) {
  static const auto* const kDriver = new auto(DriverFunctions::find());  // lives on after exit()
  if (memory == nullptr || !kDriver->ok()) return;
  const PrimaryContext context(**kDriver, device);
  if (!context.is_current()) return;
  const RelaxedCapture relaxed;
  if (is_default_stream_free()) {
    (void)worked(cudaFreeAsync(memory, cudaStreamLegacy));
  } else if (Stream own = nullptr; worked(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking))) {
    (void)worked(cudaFreeAsync(memory, own));
    (void)worked(cudaStreamDestroy(own));  // runs what is in it all the same
  }
}

}  // namespace ronde::collectives::cuda

extern "C" __attribute__((visibility("default"))) const ronde_plugin* ronde_plugin_entry() {
  return &ronde::collectives::cuda::plugin_table();
}
