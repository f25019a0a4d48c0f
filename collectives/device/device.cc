// SPDX-License-Identifier: Apache-2.0
// Every call of a plug-in goes through this file, which turns its answers into Status.
#include "collectives/device/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "base/numbers.h"

namespace ronde::collectives {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

namespace {

// A plug-in gets this long to end its works after abort(): plugin.h grants it less.
constexpr std::chrono::seconds kAbortTime{1};
constexpr std::chrono::microseconds kAbortPoll{100};

// Where a plug-in writes why it failed.
struct Text {
  std::array<char, 512> bytes{};

  [[nodiscard]] std::string get() const {
    std::string text(bytes.data(), ::strnlen(bytes.data(), bytes.size()));
    // Errors are one line whatever a plug-in writes.
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text.empty() ? "it gives no reason" : text;
  }
};

Status failed(const ronde_plugin& table, const char* action, ronde_plugin_status status,
              const Text& text) {
  const Code code = status == RONDE_PLUGIN_INVALID ? Code::kUnsupported : Code::kTransport;
  return Status::error(
      code, "the device (" + std::string(table.name) + ") " + action + ": " + text.get());
}

// The plug-in has rejected an argument of the caller, or the device has failed and cannot judge it.
Status rejected(const ronde_plugin& table, const char* action, ronde_plugin_status status,
                const Text& text) {
  if (status == RONDE_PLUGIN_INVALID) return Status::error(Code::kInvalidArgument, text.get());
  return failed(table, action, status, text);
}

// The error of threads that submit while another one closes the engine.
Status closed() { return Status::error(Code::kClosed, "this engine has been closed"); }

}  // namespace

// ---- works ----

Result<bool> DeviceWork::poll() {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (work_ == nullptr) return true;
  Text text;
  const auto status = table_.poll(engine_, work_, text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_PENDING) return false;
  table_.release(engine_, std::exchange(work_, nullptr));
  if (status == RONDE_PLUGIN_OK) return true;
  // This is never kUnsupported: the other ranks go on without this one.
  return failure_ = failed(table_, "failed", RONDE_PLUGIN_FAILED, text);
}

Result<bool> DeviceWork::wait_on(void* stream) {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (work_ == nullptr) return true;
  Text text;
  const auto status = table_.wait_on(engine_, work_, stream, text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_OK) return true;
  if (status == RONDE_PLUGIN_PENDING) return false;
  return failed(table_, "cannot have the stream wait", status, text);
}

bool DeviceWork::is_over() {
  const MutexLock lock(mutex_);
  return work_ == nullptr;
}

void DeviceWork::forget() {
  const MutexLock lock(mutex_);
  if (std::exchange(work_, nullptr) != nullptr) {
    failure_ = Status::error(Code::kClosed, "the device was closed before this was over");
  }
}

// ---- opening, aborting and closing ----

Device::Device(const ronde_plugin& table, Host host)
    : table_(table), gate_(std::make_shared<PluginGate>(table)), host_(std::move(host)) {
  given_.struct_size = sizeof given_;
  given_.context = this;
  given_.rank = host_.rank;
  given_.size = host_.size;
  given_.rank_on_host = host_.rank_on_host;
  given_.size_of_host = host_.size_of_host;
  given_.allgather = [](void* context, const void* mine, std::size_t bytes, void* all, char* text,
                        std::size_t text_bytes) {
    const auto& self = *static_cast<const Device*>(context);
    const Status status = self.host_.allgather(
        {static_cast<const std::byte*>(mine), bytes},
        {static_cast<std::byte*>(all), bytes * static_cast<std::size_t>(self.host_.size)});
    if (status.ok()) return RONDE_PLUGIN_OK;
    if (text_bytes > 0) {
      const std::string why = status.message().substr(0, text_bytes - 1);
      std::memcpy(text, why.c_str(), why.size() + 1);
    }
    return RONDE_PLUGIN_FAILED;
  };
  given_.ring = [](void* context) { static_cast<const Device*>(context)->host_.ring(); };
  given_.log = [](void* context, std::int32_t level, const char* line) {
    constexpr auto kMost = static_cast<std::int32_t>(base::LogLevel::kError);
    static_cast<const Device*>(context)->host_.log(
        static_cast<base::LogLevel>(std::clamp(level, 0, kMost)), line);
  };
  info_.struct_size = sizeof info_;
}

Result<std::shared_ptr<Device>> Device::open(const PluginLibrary& library, Host host) {
  std::shared_ptr<Device> device(new Device(library.table(), std::move(host)));
  Text text;
  const auto status = device->table_.open(&device->given_, &device->engine_, &device->info_,
                                          text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_OK && device->engine_ != nullptr) {
    device->gate_->open(device->engine_);
    return device;
  }
  device->engine_ = nullptr;
  // The engine goes on without the device; only the text is used, in a line of the log.
  return Status::error(Code::kUnsupported, text.get());
}

std::string Device::versions() const {
  return {info_.versions, ::strnlen(info_.versions, sizeof info_.versions)};
}

void Device::abort(const std::string& why) {
  if (engine_ == nullptr || std::exchange(aborted_, true)) return;
  table_.abort(engine_, why.c_str());
  // This is the machine's clock: a device does not follow the clock of a test.
  const auto deadline = std::chrono::steady_clock::now() + kAbortTime;
  const auto over = [](const DeviceWorkPtr& work) {
    const auto polled = work->poll();
    return !polled.ok() || *polled;
  };
  while (!works_.empty()) {
    std::erase_if(works_, over);
    if (works_.empty() || std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kAbortPoll);
  }
  stuck_ = !works_.empty();
  if (!stuck_) return;
  host_.log(base::LogLevel::kError, "the device (" + name() + ") did not end " +
                                        std::to_string(works_.size()) +
                                        " of its works in time: until it does, it may read and "
                                        "write the memory of tensors that have failed");
}

void Device::close() {
  if (engine_ == nullptr) return;
  gate_->shut();
  for (const DeviceWorkPtr& work : works_) work->forget();
  works_.clear();
  table_.close(std::exchange(engine_, nullptr));
}

// ---- what callers pass in ----

Result<ronde_plugin_memory> Device::classify(const void* pointer) {
  Text text;
  ronde_plugin_memory memory{RONDE_MEMORY_HOST, -1};
  auto status = RONDE_PLUGIN_OK;
  if (!gate_->enter([&](const ronde_plugin& table, ronde_plugin_engine* engine) {
        status = table.classify(engine, pointer, &memory, text.bytes.data(), text.bytes.size());
      })) {
    return closed();
  }
  if (status == RONDE_PLUGIN_OK) return memory;
  return rejected(table_, "cannot tell whose memory this is", status, text);
}

Status Device::check_stream(void* stream) {
  Text text;
  auto status = RONDE_PLUGIN_OK;
  if (!gate_->enter([&](const ronde_plugin& table, ronde_plugin_engine* engine) {
        status = table.check_stream(engine, stream, text.bytes.data(), text.bytes.size());
      })) {
    return closed();
  }
  if (status == RONDE_PLUGIN_OK) return {};
  return rejected(table_, "cannot tell whether the stream can be used", status, text);
}

Result<ReadyMarkPtr> Device::mark(void* stream, void* event) {
  Text text;
  ronde_plugin_mark* mark = nullptr;
  auto status = RONDE_PLUGIN_OK;
  if (!gate_->enter([&](const ronde_plugin& table, ronde_plugin_engine* engine) {
        status = table.mark(engine, stream, event, &mark, text.bytes.data(), text.bytes.size());
      })) {
    return closed();
  }
  if (status == RONDE_PLUGIN_OK) return std::make_shared<const ReadyMark>(gate_, mark);
  return rejected(table_, "cannot tell when the tensor is ready", status, text);
}

// ---- batches, copies and memory ----

DeviceWorkPtr Device::keep(ronde_plugin_work* work) {
  std::erase_if(works_, [](const DeviceWorkPtr& one) { return one->is_over(); });
  return works_.emplace_back(std::make_shared<DeviceWork>(table_, engine_, work));
}

Result<DeviceWorkPtr> Device::execute(const ronde_plugin_batch& batch) {
  Text text;
  ronde_plugin_work* work = nullptr;
  const auto status = table_.execute(engine_, &batch, &work, text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_OK) return keep(work);
  return failed(table_, "refused a batch", status, text);
}

Result<DeviceWorkPtr> Device::copy(Start start, const char* what, const ronde_plugin_copy& copy) {
  Text text;
  ronde_plugin_work* work = nullptr;
  const auto status = start(engine_, &copy, &work, text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_OK) return keep(work);
  // Only this rank fails, so this is never kUnsupported, which all ranks would have to agree on.
  return failed(table_, what, RONDE_PLUGIN_FAILED, text);
}

Result<DeviceWorkPtr> Device::copy_out(const ronde_plugin_copy& copy) {
  return this->copy(table_.copy_out, "cannot copy to host memory", copy);
}

Result<DeviceWorkPtr> Device::copy_in(const ronde_plugin_copy& copy) {
  return this->copy(table_.copy_in, "cannot copy from host memory", copy);
}

Result<Staging> Device::allocate_staging(std::size_t bytes) {
  Text text;
  void* memory = nullptr;
  // No bytes get memory as well, so that nullptr always means a failure.
  const auto status = table_.allocate_host(engine_, std::max<std::size_t>(bytes, 1), &memory,
                                           text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_OK) return Staging(static_cast<std::byte*>(memory), {this});
  return Status::error(Code::kOutOfMemory, "no host memory of " + std::to_string(bytes) +
                                               " bytes that the device can reach: " + text.get());
}

Result<DeviceMemory> Device::allocate(std::size_t bytes) {
  Text text;
  void* memory = nullptr;
  std::int32_t device = -1;
  const auto status = table_.allocate(engine_, std::max<std::size_t>(bytes, 1), &memory, &device,
                                      text.bytes.data(), text.bytes.size());
  if (status == RONDE_PLUGIN_OK) {
    return DeviceMemory{static_cast<std::byte*>(memory), device, table_.free};
  }
  return Status::error(Code::kOutOfMemory,
                       "no device memory of " + std::to_string(bytes) + " bytes: " + text.get());
}

// A copy that may still be under way uses the memory, so close() frees it, with everything else.
void FreeStaging::operator()(std::byte* memory) const {
  if (device->engine_ == nullptr || device->stuck_) return;
  device->table_.free_host(device->engine_, memory);
}

}  // namespace ronde::collectives
