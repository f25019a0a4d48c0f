// SPDX-License-Identifier: Apache-2.0
// One engine of a device's plug-in (plugin.h), as the rest of Ronde sees it: errors are Status, and
// works are kept until they are over on the device.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status.h"
#include "collectives/device/plugin.h"
#include "collectives/device/plugin_gate.h"
#include "collectives/device/plugin_library.h"

namespace ronde::collectives {

class Device;

// A batch or a copy under way on the device. Thread safety: wait_on() from any thread, the rest
// belongs to the agent.
class DeviceWork {
 public:
  DeviceWork(const ronde_plugin& table, ronde_plugin_engine* engine, ronde_plugin_work* work)
      : table_(table), engine_(engine), work_(work) {}
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  // Returns whether the work is over; then it has been released. An error ends the job.
  base::Result<bool> poll();
  // Returns true when the stream waits: what is put into `stream` from now on begins when the work
  // is over. False: the work is in no stream of the device yet, so ask again.
  base::Result<bool> wait_on(void* stream);
  [[nodiscard]] bool is_over();
  // Drops the work: the plug-in has closed, or will never answer.
  void forget();

 private:
  const ronde_plugin& table_;
  ronde_plugin_engine* const engine_;
  // A thread may wait while the work ends, and while the device is closed. The lock is held during
  // calls of the plug-in, none of which blocks.
  base::Mutex mutex_;
  ronde_plugin_work* work_ RONDE_GUARDED_BY(mutex_);
  base::Status failure_ RONDE_GUARDED_BY(mutex_);
};
using DeviceWorkPtr = std::shared_ptr<DeviceWork>;

// Host memory that the device copies to and from at full speed.
struct FreeStaging {
  Device* device = nullptr;
  void operator()(std::byte* memory) const;
};
using Staging = std::unique_ptr<std::byte, FreeStaging>;

// Memory of the device, which outlives the engine.
struct DeviceMemory {
  std::byte* memory = nullptr;
  std::int32_t device = -1;
  void (*free)(std::int32_t device, void* memory) = nullptr;
};

// Thread safety: classify(), check_stream() and mark() from any thread, also while it is closed;
// the rest belongs to the thread that opens it, and then to the agent.
class Device {
 public:
  // What the plug-in gets from Ronde. It may call the functions until close() has returned.
  struct Host {
    std::int32_t rank = 0;
    std::int32_t size = 1;
    std::int32_t rank_on_host = 0;
    std::int32_t size_of_host = 1;
    // Exchanges bytes of equal length: all ranks', by rank. Only called inside open().
    std::function<base::Status(std::span<const std::byte> mine, std::span<std::byte> all)>
        allgather;
    std::function<void()> ring;
    std::function<void(base::LogLevel level, std::string_view text)> log;
  };

  static base::Result<std::shared_ptr<Device>> open(const PluginLibrary& library, Host host);
  ~Device() { close(); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] std::string name() const { return table_.name; }
  // "CUDA 13.0, driver 580.65"
  [[nodiscard]] std::string versions() const;
  [[nodiscard]] std::int32_t number() const { return info_.device; }
  // Whether the device of this rank can reach those of the others; other ranks may differ.
  [[nodiscard]] bool has_collectives() const {
    return info_.has_collectives != 0 && table_.execute != nullptr;
  }

  // Says what a pointer points to. kInvalidArgument, here and below: the caller's argument is
  // wrong. Other errors end the job.
  base::Result<ronde_plugin_memory> classify(const void* pointer);
  base::Status check_stream(void* stream);
  // Marks what is in `stream` now, or up to `event` as it was recorded last.
  base::Result<ReadyMarkPtr> mark(void* stream, void* event);

  // Starts a batch. kUnsupported: no rank's device can do this, and nothing was done. Other errors
  // end the job.
  base::Result<DeviceWorkPtr> execute(const ronde_plugin_batch& batch);
  base::Result<DeviceWorkPtr> copy_out(const ronde_plugin_copy& copy);
  base::Result<DeviceWorkPtr> copy_in(const ronde_plugin_copy& copy);
  base::Result<Staging> allocate_staging(std::size_t bytes);
  base::Result<DeviceMemory> allocate(std::size_t bytes);

  // Ends all works since the job has failed. When this returns (after two seconds at the latest)
  // none is under way, if the plug-in keeps its promise to end them within a second, and memory
  // that it copied from and to may be released. Nothing new can be started afterwards.
  void abort(const std::string& why);
  // Closes the plug-in, which is not called any more afterwards. May be called again.
  void close();
  // Leaves the engine as it is in a forked child, which lacks the plug-in's threads.
  void forget() { engine_ = nullptr; }

 private:
  friend struct FreeStaging;
  using Start = ronde_plugin_status (*)(ronde_plugin_engine*, const ronde_plugin_copy*,
                                        ronde_plugin_work**, char*, std::size_t);

  Device(const ronde_plugin& table, Host host);
  base::Result<DeviceWorkPtr> copy(Start start, const char* what, const ronde_plugin_copy& copy);
  DeviceWorkPtr keep(ronde_plugin_work* work);

  const ronde_plugin& table_;
  const std::shared_ptr<PluginGate> gate_;  // for calls from other threads than the agent's
  const Host host_;
  ronde_plugin_host given_{};
  ronde_plugin_info info_{};
  ronde_plugin_engine* engine_ = nullptr;
  std::vector<DeviceWorkPtr> works_;  // those that may be under way
  bool aborted_ = false;
  bool stuck_ = false;  // some works did not end in time: close() frees their memory
};

}  // namespace ronde::collectives
