// SPDX-License-Identifier: Apache-2.0
// A device that is a few threads of this process, seen through the interface of CUDA.
#pragma once

#include <memory>
#include <mutex>

#include "collectives/cuda/cuda_api.h"
#include "test/device/toy_stream.h"

namespace ronde::fake {

// May be recorded again; whoever waits waits for what was recorded before.
struct FakeEvent {
  std::mutex mutex;
  std::shared_ptr<toy::Event> recorded;
  bool captured = false;

  void record(toy::Stream& stream) {
    const std::lock_guard lock(mutex);
    captured = stream.captures();
    recorded = captured ? nullptr : stream.record();
  }
  [[nodiscard]] bool is_captured() {
    const std::lock_guard lock(mutex);
    return captured;
  }
  [[nodiscard]] std::shared_ptr<toy::Event> get() {
    const std::lock_guard lock(mutex);
    return recorded;
  }
};

[[nodiscard]] toy::Stream& stream_of(void* stream);

void set_current_device(int device);
[[nodiscard]] int current_device();
// The capture mode of the calling thread: 0 is global, 2 relaxed.
void set_capture_mode(int mode);
[[nodiscard]] int capture_mode();

[[nodiscard]] std::unique_ptr<collectives::cuda::CudaApi> make_fake_cuda();

}  // namespace ronde::fake
