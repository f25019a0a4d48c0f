// SPDX-License-Identifier: Apache-2.0
// The device under test: its memory and streams, and one rank with an engine of its plug-in. The
// header needs no GoogleTest, since programs for machines with nothing but a GPU use it too.
#pragma once

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/device/plugin.h"
#include "test/device/kit.h"

// A program may bring the kit of a device whose plug-in has none, as that of a GPU.
extern "C" __attribute__((weak)) const ronde_device_kit* ronde_device_kit_entry();

namespace ronde::device_test {

using Text = std::array<char, 256>;
constexpr std::chrono::seconds kHang{60};

// Numbers of ronde.h.
inline constexpr std::int32_t kI16 = 3;
inline constexpr std::int32_t kF16 = 8;
inline constexpr std::int32_t kF32 = 10;
inline constexpr std::int32_t kBool = 12;
inline constexpr std::int32_t kAverage = 0;
inline constexpr std::int32_t kSum = 1;
inline constexpr std::int32_t kMin = 2;
inline constexpr std::int32_t kBitXor = 7;

// What is under test: RONDE_DEVICE_PLUGIN names it.
struct Device {
  const ronde_plugin* plugin = nullptr;
  const ronde_device_kit* kit = nullptr;
  bool is_real = false;  // the kit is the program's

  static const Device& instance() {
    static const Device kDevice = load();
    return kDevice;
  }

 private:
  static Device load() {
    const char* const path = std::getenv("RONDE_DEVICE_PLUGIN");
    void* const library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    Device device;
    if (&ronde_device_kit_entry != nullptr) {
      device.kit = ronde_device_kit_entry();
      device.is_real = true;
    }
    if (library == nullptr) return device;
    const auto entry =
        reinterpret_cast<ronde_plugin_entry_function>(::dlsym(library, RONDE_PLUGIN_ENTRY));
    const auto kit =
        reinterpret_cast<ronde_device_kit_entry_function>(::dlsym(library, RONDE_DEVICE_KIT_ENTRY));
    if (entry != nullptr) device.plugin = entry();
    if (kit != nullptr && device.kit == nullptr) device.kit = kit();
    return device;
  }
};

// Memory of the device, filled and read by a rank. Thread safety: one thread at a time.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes, bool managed = false)
      : kit_(*Device::instance().kit),
        bytes_(bytes),
        memory_(managed ? kit_.allocate_managed(bytes) : kit_.allocate(bytes)) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  template <class T>
  explicit DeviceMemory(const std::vector<T>& values, bool managed = false)
      : DeviceMemory(values.size() * sizeof(T), managed) {
    if (!values.empty()) kit_.write(memory_, values.data(), bytes_, nullptr);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { kit_.free(memory_); }

  [[nodiscard]] void* get() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> result(bytes_ / sizeof(T));
    if (!result.empty()) kit_.read(result.data(), memory_, bytes_, nullptr);
    return result;
  }

 private:
  const ronde_device_kit& kit_;
  const std::size_t bytes_;
  void* const memory_;
};

// A stream of the device, which has run when it goes. Thread safety: one thread.
class DeviceStream {
 public:
  DeviceStream() : kit_(*Device::instance().kit), stream_(kit_.make_stream()) {}
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  ~DeviceStream() {
    kit_.synchronize(stream_);
    kit_.free_stream(stream_);
  }
  [[nodiscard]] void* get() const { return stream_; }
  void delay(std::int32_t milliseconds) const { kit_.delay(stream_, milliseconds); }
  // From device to device.
  void copy(const DeviceMemory& to, const DeviceMemory& from) const {
    kit_.copy(stream_, to.get(), from.get(), from.bytes());
  }

 private:
  const ronde_device_kit& kit_;
  void* const stream_;
};

// One rank. Thread safety: that of the plug-in.
class DeviceRank {
 public:
  // False: not all ranks have come.
  using Allgather =
      std::function<bool(std::int32_t rank, const void* mine, std::size_t bytes, void* all)>;
  using Wrong = std::function<void(const std::string& what)>;

  DeviceRank(std::int32_t rank, std::int32_t size, Allgather allgather, Wrong wrong)
      : rank_(rank), size_(size), allgather_(std::move(allgather)), wrong_(std::move(wrong)) {
    host_.struct_size = sizeof host_;
    host_.context = this;
    host_.rank = host_.rank_on_host = rank;
    host_.size = host_.size_of_host = size;
    host_.allgather = [](void* context, const void* mine, std::size_t bytes, void* all, char* text,
                         std::size_t text_bytes) {
      auto& self = *static_cast<DeviceRank*>(context);
      if (self.allgather_(self.rank_, mine, bytes, all)) return RONDE_PLUGIN_OK;
      std::snprintf(text, text_bytes, "not all ranks have come");
      return RONDE_PLUGIN_FAILED;
    };
    host_.ring = [](void* context) { ++static_cast<DeviceRank*>(context)->rings_; };
    host_.log = [](void* context, std::int32_t /*level*/, const char* text) {
      auto& self = *static_cast<DeviceRank*>(context);
      const std::lock_guard lock(self.log_mutex_);
      self.log_ += std::string(text) + "\n";
    };
    info_.struct_size = sizeof info_;
    opened_ = plugin().open(&host_, &engine_, &info_, text_.data(), text_.size());
  }
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;
  ~DeviceRank() { close(); }

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t size() const { return size_; }
  [[nodiscard]] const ronde_plugin& plugin() const { return *Device::instance().plugin; }
  [[nodiscard]] ronde_plugin_engine* engine() const { return engine_; }
  [[nodiscard]] ronde_plugin_status opened() const { return opened_; }
  [[nodiscard]] const ronde_plugin_info& info() const { return info_; }
  [[nodiscard]] std::string text() const { return text_.data(); }
  [[nodiscard]] int rings() const { return rings_.load(); }
  // What the plug-in has said, one line each.
  [[nodiscard]] std::string log() const {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }

  ronde_plugin_work* execute(const ronde_plugin_batch& batch) {
    ronde_plugin_work* work = nullptr;
    const auto status = plugin().execute(engine_, &batch, &work, text_.data(), text_.size());
    if (status != RONDE_PLUGIN_OK) wrong_("execute: " + text());
    return work;
  }
  // Polls until it is over, and releases it.
  ronde_plugin_status finish(ronde_plugin_work* work) {
    if (work == nullptr) return RONDE_PLUGIN_FAILED;
    const auto end = std::chrono::steady_clock::now() + kHang;
    auto status = RONDE_PLUGIN_PENDING;
    while ((status = poll(work)) == RONDE_PLUGIN_PENDING) {
      if (std::chrono::steady_clock::now() > end) return status;
      std::this_thread::yield();
    }
    plugin().release(engine_, work);
    return status;
  }
  ronde_plugin_status poll(ronde_plugin_work* work) {
    return plugin().poll(engine_, work, text_.data(), text_.size());
  }
  // What is in the stream now, or up to the event; until unmark().
  ronde_plugin_mark* mark(void* stream, void* ready_event = nullptr) {
    ronde_plugin_mark* result = nullptr;
    const auto status =
        plugin().mark(engine_, stream, ready_event, &result, text_.data(), text_.size());
    if (status != RONDE_PLUGIN_OK) wrong_("mark: " + text());
    return result;
  }
  void unmark(ronde_plugin_mark* mark) { plugin().unmark(engine_, mark); }
  // Asks until the work is in a stream of the device.
  ronde_plugin_status wait_on(ronde_plugin_work* work, void* stream) {
    const auto end = std::chrono::steady_clock::now() + kHang;
    while (true) {
      const auto status = plugin().wait_on(engine_, work, stream, text_.data(), text_.size());
      if (status != RONDE_PLUGIN_PENDING || std::chrono::steady_clock::now() > end) return status;
      poll(work);  // some go on only when they are looked at
      std::this_thread::yield();
    }
  }
  // The kind of memory; -1 where the plug-in cannot tell.
  [[nodiscard]] std::int32_t kind_of(const void* pointer) const {
    ronde_plugin_memory memory{-1, -2};
    Text text{};
    const auto status = plugin().classify(engine_, pointer, &memory, text.data(), text.size());
    const bool right = (memory.device >= 0) == (memory.kind != RONDE_MEMORY_HOST);
    return status == RONDE_PLUGIN_OK && right ? memory.kind : -1;
  }
  ronde_plugin_status check_stream(void* stream) {
    return plugin().check_stream(engine_, stream, text_.data(), text_.size());
  }
  void close() {
    if (engine_ != nullptr) plugin().close(engine_);
    engine_ = nullptr;
  }

 private:
  const std::int32_t rank_;
  const std::int32_t size_;
  const Allgather allgather_;
  const Wrong wrong_;
  ronde_plugin_host host_{};
  ronde_plugin_info info_{};
  ronde_plugin_engine* engine_ = nullptr;
  ronde_plugin_status opened_ = RONDE_PLUGIN_FAILED;
  std::atomic<int> rings_{0};
  mutable std::mutex log_mutex_;
  std::string log_;
  Text text_{};
};

// What a stream or an event has so far, as long as this lives.
class MarkOwner {
 public:
  MarkOwner(DeviceRank& rank, void* stream, void* event = nullptr)
      : rank_(rank), mark_(rank.mark(stream, event)) {}
  MarkOwner(const MarkOwner&) = delete;
  MarkOwner& operator=(const MarkOwner&) = delete;
  ~MarkOwner() { rank_.unmark(mark_); }
  [[nodiscard]] ronde_plugin_mark* get() const { return mark_; }

 private:
  DeviceRank& rank_;
  ronde_plugin_mark* const mark_;
};

// A batch that owns its tensors' descriptions; a sum of f32, if nothing else is said.
struct Batch {
  explicit Batch(ronde_plugin_operation operation = RONDE_PLUGIN_ALLREDUCE) {
    batch.struct_size = sizeof batch;
    batch.operation = operation;
    batch.dtype = kF32;
    batch.op = kSum;
    batch.prescale = batch.postscale = 1.0;
  }
  // In place.
  Batch& add(const DeviceMemory& memory, std::size_t elements, ronde_plugin_mark* ready = nullptr) {
    tensors.push_back({memory.get(), memory.get(), static_cast<std::int64_t>(elements), ready});
    return *this;
  }
  const ronde_plugin_batch& get() {
    batch.tensor_count = static_cast<std::int32_t>(tensors.size());
    batch.tensors = tensors.data();
    return batch;
  }

  ronde_plugin_batch batch{};
  std::vector<ronde_plugin_tensor> tensors;
};

// 1 to 4, by rank and place, so that every order of summing gives the same.
inline std::vector<float> contribution(std::int32_t rank, std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 4);
  }
  return values;
}
inline std::vector<float> summed(std::int32_t ranks, std::size_t elements) {
  std::vector<float> sum(elements);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const std::vector<float> one = contribution(rank, elements);
    for (std::size_t i = 0; i < elements; ++i) sum[i] += one[i];
  }
  return sum;
}

}  // namespace ronde::device_test
