// SPDX-License-Identifier: Apache-2.0
// The calls of CUDA behind a Stream, and the choice of a device by the rank on its host.
#include "examples/gpu/cuda/stream.h"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "examples/gpu/no_device.h"

namespace ronde::examples::cuda {

namespace {

// This is longer than the engine waits for another rank before it fails the job.
constexpr std::chrono::minutes kPatience{35};

// Returns this process's number on its host, which ronderun and mpirun put into the environment; 0
// without it.
int local_rank() {
  const char* text = std::getenv("RONDE_LOCAL_RANK");
  if (text == nullptr) text = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  const std::string_view digits = text == nullptr ? "" : text;
  int rank = 0;
  (void)std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  return rank < 0 ? 0 : rank;
}

}  // namespace

void check(const char* action, cudaError_t error) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA, ") + action + ": " + cudaGetErrorString(error));
}

Stream::Stream() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    const std::string why =
        error == cudaSuccess ? "" : std::string(" (") + cudaGetErrorString(error) + ")";
    throw NoDevice("there is no CUDA device on this machine" + why);
  }
  device_ = local_rank() % devices;
  check("taking a device", cudaSetDevice(device_));
  check("making a stream", cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Stream::~Stream() { (void)cudaStreamDestroy(stream_); }

std::string Stream::name() const {
  cudaDeviceProp properties{};
  check("asking for the device's name", cudaGetDeviceProperties(&properties, device_));
  return properties.name;
}

void Stream::finish() const {
  const auto begin = std::chrono::steady_clock::now();
  cudaError_t error = cudaSuccess;
  while ((error = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > kPatience) {
      throw std::runtime_error(
          "the GPU has not finished its work in 35 minutes: check whether another rank has "
          "stopped");
    }
    // A short wait spins; a long one leaves the core to others.
    if (waited > std::chrono::milliseconds(1)) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  check("running", error);
}

void* Stream::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  check("allocating device memory", error);
  return memory;
}

void* Stream::allocate_host(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  check("allocating pinned host memory", error);
  return memory;
}

void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  check("copying", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
}

void Stream::clear(void* memory, std::size_t bytes) const {
  if (bytes == 0) return;
  check("clearing", cudaMemsetAsync(memory, 0, bytes, stream_));
}

}  // namespace ronde::examples::cuda
