// SPDX-License-Identifier: Apache-2.0
// A GPU as programs have it.
#include "test/gpu/batches.h"
#include "test/gpu/engine_kit.h"

namespace ronde::gpu_test {

namespace {

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

void synchronize(void* stream) {
  (void)good(cudaStreamSynchronize(as_stream(stream)), "running a stream");
}

void copy(void* stream, void* to, const void* from, size_t bytes) {
  (void)good(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "copying");
}

}  // namespace

const ronde_device_kit& open_kit(const char* /*library*/) {
  (void)good(cudaSetDevice(0), "the device");
  static const ronde_device_kit kKit{
      sizeof kKit,
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
      [](void* stream, int32_t milliseconds) { sleep_in_stream(as_stream(stream), milliseconds); },
      copy,
      synchronize,
      [](void* stream) -> void* {
        cudaEvent_t event = nullptr;
        (void)good(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
        (void)good(cudaEventRecord(event, as_stream(stream)), "recording");
        return event;
      },
      [](void* event, void* stream) {
        (void)good(cudaEventRecord(static_cast<cudaEvent_t>(event), as_stream(stream)),
                   "recording");
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
  return kKit;
}

bool has_device() { return has_gpu(); }
bool has_network() { return true; }

}  // namespace ronde::gpu_test
