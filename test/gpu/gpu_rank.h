// SPDX-License-Identifier: Apache-2.0
// One rank with a GPU and an engine of the plug-in, for programs that have no test framework: what
// is wrong is printed and counted.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "collectives/device/plugin.h"
#include "test/gpu/forked_job.h"

namespace ronde::gpu_test {

inline bool good(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return true;
  std::printf("  %s: %s\n", doing, cudaGetErrorString(error));
  return false;
}

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

// Device memory. Thread safety: one thread.
template <class T>
class GpuVector {
 public:
  explicit GpuVector(const std::vector<T>& values) : size_(values.size()) {
    (void)good(cudaMalloc(&memory_, size_ * sizeof(T) + 1), "cudaMalloc");
    (void)good(cudaMemcpy(memory_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
               "to the device");
    // From memory that is not pinned it may still be on its way, and other streams do not wait.
    (void)good(cudaStreamSynchronize(cudaStreamLegacy), "arriving on the device");
  }
  GpuVector(const GpuVector&) = delete;
  GpuVector& operator=(const GpuVector&) = delete;
  ~GpuVector() { (void)cudaFree(memory_); }
  [[nodiscard]] void* get() const { return memory_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> result(size_);
    (void)good(cudaMemcpy(result.data(), memory_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
               "from the device");
    return result;
  }

 private:
  const std::size_t size_;
  void* memory_ = nullptr;
};

// Thread safety: that of the plug-in; the counters by one thread.
class GpuRank {
 public:
  GpuRank(const char* library, int rank, int size, Meeting& meeting)
      : rank_(rank), size_(size), meeting_(meeting) {
    void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const auto entry =
        handle == nullptr
            ? nullptr
            : reinterpret_cast<ronde_plugin_entry_function>(::dlsym(handle, RONDE_PLUGIN_ENTRY));
    if (!expect(entry != nullptr, "the plug-in loads")) return;
    plugin_ = entry();
    host_.struct_size = sizeof host_;
    host_.context = this;
    host_.rank = host_.rank_on_host = rank;
    host_.size = host_.size_of_host = size;
    host_.allgather = [](void* context, const void* mine, std::size_t bytes, void* all, char* text,
                         std::size_t text_bytes) {
      auto& self = *static_cast<GpuRank*>(context);
      if (self.meeting_.allgather(self.rank_, self.size_, mine, bytes, all)) return RONDE_PLUGIN_OK;
      std::snprintf(text, text_bytes, "not all ranks have come");
      return RONDE_PLUGIN_FAILED;
    };
    host_.ring = [](void* context) { ++static_cast<GpuRank*>(context)->rings_; };
    host_.log = [](void*, std::int32_t, const char* text) { std::printf("  log: %s\n", text); };
    info_.struct_size = sizeof info_;
    const auto status = plugin_->open(&host_, &engine_, &info_, text_.data(), text_.size());
    expect(status == RONDE_PLUGIN_OK, "open");
  }
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;
  ~GpuRank() { close(); }
  void close() {
    if (engine_ != nullptr) plugin_->close(engine_);
    engine_ = nullptr;
  }

  bool expect(bool right, const std::string& what) {
    if (right) return true;
    ++wrong_;
    std::printf("  rank %d of %d: %s: WRONG (%s)\n", rank_, size_, what.c_str(), text_.data());
    return false;
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int wrong() const { return wrong_; }
  [[nodiscard]] int rings() const { return rings_.load(); }
  [[nodiscard]] bool is_open() const { return engine_ != nullptr; }
  [[nodiscard]] const ronde_plugin_info& info() const { return info_; }
  [[nodiscard]] const ronde_plugin& plugin() const { return *plugin_; }
  [[nodiscard]] ronde_plugin_engine* engine() const { return engine_; }
  [[nodiscard]] Meeting& meeting() const { return meeting_; }
  [[nodiscard]] std::array<char, 256>& text() { return text_; }

  // nullptr: it is ready.
  ronde_plugin_mark* mark(void* stream, void* event) {
    ronde_plugin_mark* mark = nullptr;
    const auto status = plugin_->mark(engine_, stream, event, &mark, text_.data(), text_.size());
    expect(status == RONDE_PLUGIN_OK, "mark");
    return mark;
  }
  // Asks again while the work is not in a stream yet.
  ronde_plugin_status wait_on(ronde_plugin_work* work, void* stream) {
    return ask_until_over(
        [&] { return plugin_->wait_on(engine_, work, stream, text_.data(), text_.size()); });
  }
  ronde_plugin_work* execute(const ronde_plugin_batch& batch) {
    ronde_plugin_work* work = nullptr;
    const auto status = plugin_->execute(engine_, &batch, &work, text_.data(), text_.size());
    expect(status == RONDE_PLUGIN_OK, "execute");
    return work;
  }
  ronde_plugin_status poll(ronde_plugin_work* work) {
    return plugin_->poll(engine_, work, text_.data(), text_.size());
  }
  ronde_plugin_status finish(ronde_plugin_work* work) {
    if (work == nullptr) return RONDE_PLUGIN_FAILED;
    const auto status = ask_until_over([&] { return poll(work); });
    if (status != RONDE_PLUGIN_PENDING) plugin_->release(engine_, work);
    return status;
  }

 private:
  template <class Ask>
  static ronde_plugin_status ask_until_over(Ask ask) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    auto status = RONDE_PLUGIN_PENDING;
    while ((status = ask()) == RONDE_PLUGIN_PENDING && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return status;
  }

  const int rank_;
  const int size_;
  Meeting& meeting_;
  const ronde_plugin* plugin_ = nullptr;
  ronde_plugin_engine* engine_ = nullptr;
  ronde_plugin_host host_{};
  ronde_plugin_info info_{};
  std::atomic<int> rings_{0};
  int wrong_ = 0;
  std::array<char, 256> text_{};
};

}  // namespace ronde::gpu_test
