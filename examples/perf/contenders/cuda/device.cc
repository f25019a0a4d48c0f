// SPDX-License-Identifier: Apache-2.0
// A GPU's memory and its clock, by CUDA's runtime.
#include "examples/perf/contenders/device.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "examples/gpu/cuda/stream.h"
#include "examples/gpu/no_device.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

namespace {

using examples::cuda::check;
using examples::cuda::Stream;

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(std::size_t bytes)
      : memory_(static_cast<std::byte*>(Stream::allocate(bytes))) {}
  ~CudaMemory() override { Stream::release(memory_); }
  [[nodiscard]] std::byte* data() override { return memory_; }

 private:
  std::byte* const memory_;
};

// Pinned host memory through which data goes to and from the device.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { Stream::release_host(memory_); }

  std::span<std::byte> room(std::size_t bytes) {
    if (bytes > bytes_) {
      Stream::release_host(std::exchange(memory_, nullptr));
      bytes_ = 0;
      memory_ = static_cast<std::byte*>(Stream::allocate_host(bytes));
      bytes_ = bytes;
    }
    return {memory_, bytes};
  }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class CudaDevice final : public Device {
 public:
  CudaDevice() {
    check("making an event", cudaEventCreate(&begin_));
    check("making an event", cudaEventCreate(&end_));
  }
  ~CudaDevice() override {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }

  [[nodiscard]] std::int32_t number() const override { return stream_.device(); }
  [[nodiscard]] void* stream() const override { return stream_.get(); }
  [[nodiscard]] std::string name() const override { return stream_.name(); }

  [[nodiscard]] std::unique_ptr<Memory> allocate(const Engine& /*engine*/,
                                                 std::size_t bytes) override {
    auto memory = std::make_unique<CudaMemory>(bytes);
    stream_.clear(memory->data(), bytes);
    stream_.finish();
    return memory;
  }
  [[nodiscard]] std::span<std::byte> draft(std::byte* /*to*/, std::size_t bytes) override {
    return staging_.room(bytes);
  }
  void commit(std::byte* to, std::size_t bytes) override {
    stream_.copy(to, staging_.room(bytes).data(), bytes);
    stream_.finish();
  }
  [[nodiscard]] std::span<std::byte> look(std::byte* at, std::size_t bytes) override {
    const std::span<std::byte> seen = staging_.room(bytes);
    stream_.copy(seen.data(), at, bytes);
    stream_.finish();
    return seen;
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    stream_.copy(to, from, bytes);
  }

  // The stream is idle, so the first event happens at once: the time includes what the host does
  // until the work is in the stream.
  void begin() override { check("recording an event", cudaEventRecord(begin_, stream_.get())); }
  [[nodiscard]] double end() override {
    check("recording an event", cudaEventRecord(end_, stream_.get()));
    stream_.finish();
    float milliseconds = 0;
    check("taking the time", cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  Stream stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  Staging staging_;
};

}  // namespace

std::unique_ptr<Device> open_cuda_device() {
  try {
    return std::make_unique<CudaDevice>();
  } catch (const examples::NoDevice& error) {
    throw UsageError(std::string("--device cuda: ") + error.what() + ", or use --device cpu");
  }
}

}  // namespace ronde::perf
