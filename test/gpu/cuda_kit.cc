// SPDX-License-Identifier: Apache-2.0
// A GPU as programs have it.
#include <unistd.h>

#include <cstdint>

#include "test/device/device.h"
#include "test/gpu/cuda.h"

namespace ronde::gpu_test {
namespace {

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

void synchronize(void* stream) {
  (void)good(cudaStreamSynchronize(as_stream(stream)), "running a stream");
}

void copy(void* stream, void* to, const void* from, size_t bytes) {
  (void)good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "copying");
}

void delay(void* stream, std::int32_t milliseconds) {
  static constexpr auto kSleep = [](void* how_long) {
    ::usleep(static_cast<useconds_t>(reinterpret_cast<std::uintptr_t>(how_long)) * 1000);
  };
  (void)good(cudaLaunchHostFunc(as_stream(stream), kSleep,
                                reinterpret_cast<void*>(static_cast<std::uintptr_t>(milliseconds))),
             "a delay");
}

constexpr ronde_device_kit kKit{
    sizeof(ronde_device_kit),
    [](size_t bytes) {
      void* memory = nullptr;
      (void)good(cudaMalloc(&memory, bytes + 1), "cudaMalloc");
      return memory;
    },
    [](size_t bytes) {
      void* memory = nullptr;
      (void)good(cudaMallocManaged(&memory, bytes + 1), "cudaMallocManaged");
      return memory;
    },
    [](void* memory) { (void)cudaFree(memory); },
    [](void* device, const void* host, size_t bytes, void* stream) {
      copy(stream, device, host, bytes);
      synchronize(stream);
    },
    [](void* host, const void* device, size_t bytes, void* stream) {
      copy(stream, host, device, bytes);
      synchronize(stream);
    },
    []() -> void* {
      cudaStream_t stream = nullptr;
      (void)good(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
      return stream;
    },
    [](void* stream) { (void)cudaStreamDestroy(as_stream(stream)); },
    delay,
    copy,
    synchronize,
    [](void* stream) -> void* {
      cudaEvent_t event = nullptr;
      (void)good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
      (void)good(cudaEventRecord(event, as_stream(stream)), "recording");
      return event;
    },
    [](void* event, void* stream) {
      (void)good(cudaEventRecord(static_cast<cudaEvent_t>(event), as_stream(stream)), "recording");
    },
    [](void* event) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(event)); },
    [](void* stream) {
      (void)good(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal),
                 "capture");
    },
    [](void* stream) {
      cudaGraph_t graph = nullptr;
      (void)good(cudaStreamEndCapture(as_stream(stream), &graph), "capture");
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
    }};

}  // namespace
}  // namespace ronde::gpu_test

extern "C" const ronde_device_kit* ronde_device_kit_entry() {
  (void)ronde::gpu_test::good(cudaSetDevice(0), "the device");
  return &ronde::gpu_test::kKit;
}
