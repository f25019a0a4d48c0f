// SPDX-License-Identifier: Apache-2.0
// A job whose ranks are threads, each with an engine of the plug-in under test.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collectives/device/plugin.h"
#include "test/device/kit.h"

namespace ronde::device_test {

using Text = std::array<char, 256>;
constexpr std::chrono::seconds kHang{60};

// What is under test: RONDE_DEVICE_PLUGIN names it.
struct Device {
  const ronde_plugin* plugin = nullptr;
  const ronde_device_kit* kit = nullptr;

  static const Device& instance() {
    static const Device kDevice = load();
    return kDevice;
  }

 private:
  static Device load() {
    const char* const path = std::getenv("RONDE_DEVICE_PLUGIN");
    void* const library = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    Device device;
    if (library == nullptr) return device;
    const auto entry =
        reinterpret_cast<ronde_plugin_entry_function>(::dlsym(library, RONDE_PLUGIN_ENTRY));
    const auto kit =
        reinterpret_cast<ronde_device_kit_entry_function>(::dlsym(library, RONDE_DEVICE_KIT_ENTRY));
    if (entry != nullptr) device.plugin = entry();
    if (kit != nullptr) device.kit = kit();
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
  explicit DeviceMemory(const std::vector<T>& values) : DeviceMemory(values.size() * sizeof(T)) {
    if (!values.empty()) kit_.write(memory_, values.data(), bytes_, nullptr);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { kit_.free(memory_); }

  [[nodiscard]] void* get() const { return memory_; }
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

class DeviceJob;

// One rank. Thread safety: that of the plug-in.
class DeviceRank {
 public:
  DeviceRank(DeviceJob& job, std::int32_t rank);
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;
  ~DeviceRank() { close(); }

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t size() const;
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
    EXPECT_EQ(status, RONDE_PLUGIN_OK) << text();
    return work;
  }
  // Polls until it is over, and releases it.
  ronde_plugin_status finish(ronde_plugin_work* work) {
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
    EXPECT_EQ(status, RONDE_PLUGIN_OK) << text();
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
  void close() {
    if (engine_ != nullptr) plugin().close(engine_);
    engine_ = nullptr;
  }

 private:
  DeviceJob& job_;
  const std::int32_t rank_;
  ronde_plugin_host host_{};
  ronde_plugin_info info_{};
  ronde_plugin_engine* engine_ = nullptr;
  ronde_plugin_status opened_ = RONDE_PLUGIN_FAILED;
  std::atomic<int> rings_{0};
  mutable std::mutex log_mutex_;
  std::string log_;
  Text text_{};
};

// Thread safety: run() by one thread.
class DeviceJob {
 public:
  explicit DeviceJob(std::int32_t size) : size_(size), meet_(size) {}

  [[nodiscard]] std::int32_t size() const { return size_; }

  // Every rank, open, in a thread of its own.
  void run(const std::function<void(DeviceRank&)>& work) {
    std::vector<std::thread> threads;
    for (std::int32_t rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &work] {
        DeviceRank one(*this, rank);
        work(one);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void allgather(std::int32_t rank, const void* mine, std::size_t bytes, void* all) {
    if (rank == 0) gathered_.resize(bytes * static_cast<std::size_t>(size_));
    meet_.arrive_and_wait();
    std::memcpy(gathered_.data() + static_cast<std::size_t>(rank) * bytes, mine, bytes);
    meet_.arrive_and_wait();
    std::memcpy(all, gathered_.data(), gathered_.size());
    meet_.arrive_and_wait();
  }
  void meet() { meet_.arrive_and_wait(); }

 private:
  const std::int32_t size_;
  std::barrier<> meet_;
  std::vector<char> gathered_;
};

inline std::int32_t DeviceRank::size() const { return job_.size(); }

inline DeviceRank::DeviceRank(DeviceJob& job, std::int32_t rank) : job_(job), rank_(rank) {
  host_.struct_size = sizeof host_;
  host_.context = this;
  host_.rank = host_.rank_on_host = rank;
  host_.size = host_.size_of_host = job.size();
  host_.allgather = [](void* context, const void* mine, std::size_t bytes, void* all,
                       char* /*text*/, std::size_t /*text_bytes*/) {
    auto& self = *static_cast<DeviceRank*>(context);
    self.job_.allgather(self.rank_, mine, bytes, all);
    return RONDE_PLUGIN_OK;
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

}  // namespace ronde::device_test
