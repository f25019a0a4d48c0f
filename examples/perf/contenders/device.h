// SPDX-License-Identifier: Apache-2.0
// Where the memory is that is measured with, and by whose clock: the host's, or a GPU's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ronde/ronde.hpp>
#include <span>
#include <string>

namespace ronde::perf {

// A stretch of memory. Thread safety: that of its device.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  [[nodiscard]] virtual std::byte* data() = 0;
};

// Thread safety: belongs to one thread.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  // For requests: RONDE_DEVICE_CPU, or the number of a device and the stream that everything
  // happens in.
  [[nodiscard]] virtual std::int32_t number() const = 0;
  [[nodiscard]] virtual void* stream() const = 0;
  // What it is, for the report; empty for host memory.
  [[nodiscard]] virtual std::string name() const = 0;

  // Zeroed. Throws std::bad_alloc.
  [[nodiscard]] virtual std::unique_ptr<Memory> allocate(const Engine& engine,
                                                         std::size_t bytes) = 0;

  // What is written into draft(to, bytes) is at `to` after commit(to, bytes); the memory of one
  // draft is that of the next.
  [[nodiscard]] virtual std::span<std::byte> draft(std::byte* to, std::size_t bytes) = 0;
  virtual void commit(std::byte* to, std::size_t bytes) = 0;
  // What is there, for the host to read; valid until the next call.
  [[nodiscard]] virtual std::span<std::byte> look(std::byte* at, std::size_t bytes) = 0;
  // The yardstick of a device: as much memory, moved as fast as it can.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // The time between the two, in microseconds; end() waits until what was put into the stream in
  // between is over.
  virtual void begin() = 0;
  [[nodiscard]] virtual double end() = 0;
};

// Host memory. `on_board`: memory that the ranks of the host share, given out by the engine.
[[nodiscard]] std::unique_ptr<Device> make_host_device(bool on_board);
// A GPU of this process, before there is an engine, which then takes the same. Throws UsageError
// where there is none, or the build has no CUDA (no_cuda_device.cc).
[[nodiscard]] std::unique_ptr<Device> open_cuda_device();

}  // namespace ronde::perf
