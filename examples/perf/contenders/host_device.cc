// SPDX-License-Identifier: Apache-2.0
// Host memory and the host's clock as a device.
#include <chrono>
#include <cstring>

#include "examples/perf/contenders/device.h"

namespace ronde::perf {

namespace {

// Plain memory, or memory on the board.
class HostMemory final : public Memory {
 public:
  explicit HostMemory(std::size_t bytes)
      : plain_(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
  HostMemory(const Engine& engine, std::size_t bytes) : on_board_(engine, bytes) {}
  [[nodiscard]] std::byte* data() override {
    return plain_ != nullptr ? plain_.get() : on_board_.data();
  }

 private:
  std::unique_ptr<std::byte[]> plain_;
  Buffer<std::byte> on_board_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(bool on_board) : on_board_(on_board) {}

  [[nodiscard]] std::int32_t number() const override { return RONDE_DEVICE_CPU; }
  [[nodiscard]] void* stream() const override { return nullptr; }
  [[nodiscard]] std::string name() const override { return ""; }

  [[nodiscard]] std::unique_ptr<Memory> allocate(const Engine& engine, std::size_t bytes) override {
    auto memory = on_board_ ? std::make_unique<HostMemory>(engine, bytes)
                            : std::make_unique<HostMemory>(bytes);
    std::memset(memory->data(), 0, bytes);
    return memory;
  }
  [[nodiscard]] std::span<std::byte> draft(std::byte* to, std::size_t bytes) override {
    return {to, bytes};
  }
  void commit(std::byte* /*to*/, std::size_t /*bytes*/) override {}
  [[nodiscard]] std::span<std::byte> look(std::byte* at, std::size_t bytes) override {
    return {at, bytes};
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void begin() override { begin_ = Clock::now(); }
  [[nodiscard]] double end() override {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const bool on_board_;
  Clock::time_point begin_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(bool on_board) {
  return std::make_unique<HostDevice>(on_board);
}

}  // namespace ronde::perf
