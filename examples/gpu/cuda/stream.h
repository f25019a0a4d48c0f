// SPDX-License-Identifier: Apache-2.0
// One GPU for one process, and a stream of it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace ronde::examples::cuda {

// Throws std::runtime_error with CUDA's text if `error` is not cudaSuccess.
void check(const char* action, cudaError_t error);

// Thread safety: belongs to one thread.
class Stream {
 public:
  // Makes a device this thread's current one: rank r of a host takes device r modulo their number.
  // Throws NoDevice where there is none.
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  // Its name: "NVIDIA H200".
  [[nodiscard]] std::string name() const;

  // Waits until all that was put into the stream is over; throws std::runtime_error if it failed or
  // takes 35 minutes.
  void finish() const;

  [[nodiscard]] static void* allocate(std::size_t bytes);
  static void release(void* memory) noexcept { (void)cudaFree(memory); }
  // Memory of the host that is pinned.
  [[nodiscard]] static void* allocate_host(std::size_t bytes);
  static void release_host(void* memory) noexcept { (void)cudaFreeHost(memory); }

  void copy(void* to, const void* from, std::size_t bytes) const;
  void clear(void* memory, std::size_t bytes) const;

 private:
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace ronde::examples::cuda
