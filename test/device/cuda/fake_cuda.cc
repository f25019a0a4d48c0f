// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA that the plug-in calls, carried out by the threads of the toy device.
#include "test/device/cuda/fake_cuda.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/kernels/copy.h"
#include "collectives/kernels/reduce.h"
#include "test/device/cuda/fake_state.h"
#include "test/device/toy_memory.h"

namespace ronde::fake {

using base::Code;
using base::DType;
using base::Result;
using base::Status;
using collectives::cuda::CudaApi;
using collectives::cuda::DeviceInfo;
using collectives::cuda::Event;
using collectives::cuda::MemoryKind;
using collectives::cuda::MemoryPlace;
using collectives::cuda::Stream;
using fusion::PackPiece;
using fusion::cuda::PackKind;

namespace {

// The devices that a thread has made current, the last one on top.
std::vector<int>& devices_of_thread() {
  thread_local std::vector<int> devices{0};
  return devices;
}

int& mode_of_thread() {
  thread_local int mode = cudaStreamCaptureModeGlobal;
  return mode;
}

std::byte* view(const void* pointer) { return toy::Memory::instance().view(pointer); }

FakeEvent& event_of(Event event) { return *reinterpret_cast<FakeEvent*>(event); }

void scale(DType dtype, const std::byte* from, std::byte* to, std::int64_t elements,
           double factor) {
  collectives::kernels_for(dtype, base::ReduceOp::kSum)
      .of_host({&from, 1}, {&to, 1}, elements, {.prescale = factor});
}

// One piece, as the kernel would do it.
void convert(const PackPiece& piece, const PackKind& kind) {
  const std::byte* const from = view(piece.from);
  std::byte* const to = view(piece.to);
  const auto size = [&piece](DType dtype) {
    return static_cast<std::size_t>(piece.elements * base::size_of(dtype));
  };
  if (kind.from == kind.to && kind.scale == 1.0) {
    std::memcpy(to, from, size(kind.from));
  } else if (kind.from == kind.to) {
    scale(kind.from, from, to, piece.elements, kind.scale);
  } else if (kind.from == DType::kF32) {
    std::vector<std::byte> wide(size(DType::kF32));
    scale(DType::kF32, from, wide.data(), piece.elements, kind.scale);
    collectives::narrow_to_wire(kind.to, to, wide.data(), piece.elements,
                                collectives::StoreKind::kTemporal);
  } else {
    std::vector<std::byte> wide(size(DType::kF32));
    collectives::widen_from_wire(kind.from, wide.data(), from, piece.elements);
    scale(DType::kF32, wide.data(), to, piece.elements, kind.scale);
  }
}

class FakeCuda final : public CudaApi {
 public:
  Result<DeviceInfo> start(int /*rank_on_host*/) override {
    if (state_.get("no_driver") != 0) {
      return Status::error(Code::kUnsupported, "there is no fake driver");
    }
    device_ = current_device();
    // As with the toy.
    const char* const toy = std::getenv("RONDE_TOY");
    const bool staged = toy != nullptr && std::strstr(toy, "staged") != nullptr;
    const int bus = staged || state_.get("share_gpu") != 0 ? 0 : state_.add("bus", 1);
    return DeviceInfo{device_, "0000:0" + std::to_string(bus) + ":00.0", "CUDA 0.0, driver 0.1",
                      "Fake GPU"};
  }

  Result<cudaStreamCaptureMode> enter() override {
    if (state_.get("driver_gone") != 0) {
      return Status::error(Code::kClosed, "the CUDA driver is shutting down");
    }
    devices_of_thread().push_back(device_);
    return static_cast<cudaStreamCaptureMode>(
        std::exchange(mode_of_thread(), static_cast<int>(cudaStreamCaptureModeRelaxed)));
  }
  void leave(cudaStreamCaptureMode before) override {
    mode_of_thread() = before;
    devices_of_thread().pop_back();
  }

  Result<Stream> make_stream() override {
    inside();
    auto* const stream = reinterpret_cast<Stream>(new toy::Stream);
    state_.keep(stream);
    const std::lock_guard lock(mutex_);
    static constexpr std::array<const char*, 8> kNames{"comm",  "gate",   "out",       "in",
                                                       "marks", "memory", "out_chime", "in_chime"};
    names_.emplace_back(stream, kNames[names_.size() % kNames.size()]);
    state_.add("streams", 1);
    return stream;
  }
  void destroy_stream(Stream stream) override {
    inside();
    delete reinterpret_cast<toy::Stream*>(stream);
    state_.add("streams", -1);
  }
  Result<bool> is_idle(Stream stream) override {
    inside();
    return stream_of(stream).is_idle();
  }
  Result<bool> is_captured(Stream stream) override {
    inside();
    return stream_of(stream).captures();
  }
  Result<int> device_of(Stream /*stream*/) override {
    inside();
    const int forced = state_.get("stream_device");
    return forced != 0 ? forced : device_;
  }

  Result<Event> make_event() override {
    inside();
    state_.add("events", 1);
    auto* const event = new FakeEvent;
    state_.keep(event);
    return reinterpret_cast<Event>(event);
  }
  void destroy_event(Event event) override {
    inside();
    delete &event_of(event);
    state_.add("events", -1);
  }
  Status record(Event event, Stream stream) override {
    inside();
    note(stream, "record");
    event_of(event).record(stream_of(stream));
    return {};
  }
  Status wait(Stream stream, Event event) override {
    inside();
    note(stream, "wait");
    if (auto recorded = event_of(event).get()) {
      stream_of(stream).put([recorded] { recorded->wait(); });
    }
    return {};
  }
  Result<bool> is_over(Event event) override {
    inside();
    if (event_of(event).is_captured()) {
      return Status::error(Code::kSystem, "the event was last recorded in a capturing stream");
    }
    const auto recorded = event_of(event).get();
    return recorded == nullptr || recorded->is_over();
  }

  Result<void*> allocate(std::size_t bytes) override {
    inside();
    state_.add("allocations", 1);
    void* const memory =
        state_.get("no_memory") != 0 ? nullptr : toy::Memory::instance().allocate(bytes, false);
    if (memory == nullptr) return Status::error(Code::kOutOfMemory, "no device memory is left");
    state_.add("blocks", 1);
    return memory;
  }
  void free(void* memory) override {
    inside();
    toy::Memory::instance().free(memory);
    state_.add("blocks", -1);
  }
  Result<void*> allocate_in(Stream stream, std::size_t bytes) override {
    inside();
    void* const memory =
        state_.get("no_memory") != 0 ? nullptr : toy::Memory::instance().allocate(bytes, false);
    if (memory == nullptr) return Status::error(Code::kOutOfMemory, "no device memory is left");
    state_.add("results", 1);
    const auto delay = std::chrono::milliseconds(state_.get("memory_delay"));
    stream_of(stream).put([delay] { std::this_thread::sleep_for(delay); });
    return memory;
  }
  void free_in(Stream stream, void* memory) override {
    inside();
    stream_of(stream).put([memory, this] {
      toy::Memory::instance().free(memory);
      state_.add("results", -1);
    });
  }
  Result<void*> allocate_host(std::size_t bytes) override {
    inside();
    state_.add("host_allocations", 1);
    state_.add("host_blocks", 1);
    void* const memory = std::malloc(bytes);
    state_.keep(memory);
    return memory;
  }
  void free_host(void* memory) override {
    inside();
    state_.add("host_blocks", -1);
    std::free(memory);
  }
  Result<MemoryPlace> place_of(const void* pointer) override {
    inside();
    const auto place = toy::Memory::instance().find(pointer);
    if (!place) return MemoryPlace{};
    return MemoryPlace{place->managed ? MemoryKind::kManaged : MemoryKind::kDevice, device_};
  }

  Status copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    inside();
    note(stream, "copy");
    stream_of(stream).put([=] { std::memcpy(view(to), view(from), bytes); });
    return {};
  }
  Status call(Stream stream, void (*function)(void*), void* argument) override {
    inside();
    note(stream, "call");
    stream_of(stream).put([=] { function(argument); });
    return {};
  }
  Status pack(std::span<const PackPiece> pieces, const PackKind& kind, Stream stream) override {
    inside();
    note(stream, "pack " + std::to_string(pieces.size()));
    stream_of(stream).put([all = std::vector<PackPiece>(pieces.begin(), pieces.end()), kind] {
      for (const PackPiece& piece : all) convert(piece, kind);
    });
    return {};
  }

 private:
  void inside() {
    if (devices_of_thread().back() != device_ || devices_of_thread().size() < 2) {
      state_.add("outside", 1);
    }
    if (mode_of_thread() != cudaStreamCaptureModeRelaxed) state_.add("strict", 1);
  }
  void note(Stream stream, const std::string& what) {
    const std::lock_guard lock(mutex_);
    std::string name = "user";
    for (const auto& [known, its_name] : names_) {
      if (known == stream) name = its_name;
    }
    state_.note(name + ": " + what);
  }

  State& state_ = State::instance();
  int device_ = 0;
  std::mutex mutex_;
  std::vector<std::pair<Stream, std::string>> names_;
};

}  // namespace

toy::Stream& stream_of(void* stream) {
  static auto* const kDefault = new toy::Stream;  // outlives whatever is put into it
  return stream == nullptr ? *kDefault : *static_cast<toy::Stream*>(stream);
}

void set_current_device(int device) { devices_of_thread().back() = device; }

int current_device() { return devices_of_thread().back(); }

void set_capture_mode(int mode) { mode_of_thread() = mode; }

int capture_mode() { return mode_of_thread(); }

std::unique_ptr<CudaApi> make_fake_cuda() { return std::make_unique<FakeCuda>(); }

}  // namespace ronde::fake
