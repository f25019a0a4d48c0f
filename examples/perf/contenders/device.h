// SPDX-License-Identifier: Apache-2.0
// The memory and the clock that measurements use: the host's, or a GPU's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ronde/ronde.hpp>
#include <span>
#include <string>

namespace ronde::perf {

// A stretch of memory. Thread safety: as for its device.
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

  // What requests need: RONDE_DEVICE_CPU, or the number of a device and the stream that all work is
  // in.
  [[nodiscard]] virtual std::int32_t number() const = 0;
  [[nodiscard]] virtual void* stream() const = 0;
  // Its name for the report; empty for host memory.
  [[nodiscard]] virtual std::string name() const = 0;

  // Allocates memory of zeros. Throws std::bad_alloc.
  [[nodiscard]] virtual std::unique_ptr<Memory> allocate(const Engine& engine,
                                                         std::size_t bytes) = 0;

  // The host writes into draft(to, bytes), and commit(to, bytes) brings it to `to`; the next draft
  // uses the same memory.
  [[nodiscard]] virtual std::span<std::byte> draft(std::byte* to, std::size_t bytes) = 0;
  virtual void commit(std::byte* to, std::size_t bytes) = 0;
  // Returns what is at `at`, for the host to read; valid until the next call.
  [[nodiscard]] virtual std::span<std::byte> look(std::byte* at, std::size_t bytes) = 0;
  // Copies as fast as the device can: its yardstick.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;

  // Take the time between the two calls, in microseconds; end() waits until what was put into the
  // stream in between is over.
  virtual void begin() = 0;
  [[nodiscard]] virtual double end() = 0;
};

// Host memory. `on_board`: memory that the ranks of the host share, given out by the engine.
[[nodiscard]] std::unique_ptr<Device> make_host_device(bool on_board);
// Takes a GPU for this process; call it before the engine opens, which then takes the same one.
// Throws UsageError where there is none, or the build has no CUDA (no_cuda_device.cc).
[[nodiscard]] std::unique_ptr<Device> open_cuda_device();

}  // namespace ronde::perf
