// SPDX-License-Identifier: Apache-2.0
// The GPU plug-in with fakes of CUDA and NCCL behind it, as a library that passes the suite that
// every back end must pass, on a machine without a GPU.
#include <unistd.h>

#include <cstring>

#include "collectives/cuda/platform.h"
#include "collectives/cuda/plugin_table.h"
#include "test/device/cuda/fake_controls.h"
#include "test/device/cuda/fake_cuda.h"
#include "test/device/cuda/fake_nccl.h"
#include "test/device/cuda/fake_state.h"
#include "test/device/kit.h"
#include "test/device/toy_memory.h"

namespace ronde::collectives::cuda {

std::unique_ptr<CudaApi> make_cuda() { return fake::make_fake_cuda(); }

base::Result<NcclApi> find_nccl() { return fake::fake_nccl(); }

void free_result(int /*device*/, void* memory) {
  fake::State& state = fake::State::instance();
  if (state.get("driver_gone") != 0) return;
  fake::stream_of(nullptr).put([memory, &state] {
    toy::Memory::instance().free(memory);
    state.add("results", -1);
  });
}

}  // namespace ronde::collectives::cuda

namespace ronde::fake {
namespace {

using toy::Memory;

void* view(const void* pointer) { return Memory::instance().view(pointer); }

// ---- the device as a program sees it ----

constexpr ronde_device_kit kKit{
    sizeof(ronde_device_kit),
    [](std::size_t bytes) { return Memory::instance().allocate(bytes, false); },
    [](std::size_t bytes) { return Memory::instance().allocate(bytes, true); },
    [](void* memory) { Memory::instance().free(memory); },
    [](void* device, const void* host, std::size_t bytes, void* stream) {
      stream_of(stream).put([=] { std::memcpy(view(device), host, bytes); });
      stream_of(stream).record()->wait();
    },
    [](void* host, const void* device, std::size_t bytes, void* stream) {
      stream_of(stream).put([=] { std::memcpy(host, view(device), bytes); });
      stream_of(stream).record()->wait();
    },
    []() -> void* { return new toy::Stream; },
    [](void* stream) { delete static_cast<toy::Stream*>(stream); },
    [](void* stream, std::int32_t milliseconds) {
      stream_of(stream).put(
          [milliseconds] { ::usleep(static_cast<useconds_t>(milliseconds) * 1000); });
    },
    [](void* stream, void* to, const void* from, std::size_t bytes) {
      stream_of(stream).put([=] { std::memcpy(view(to), view(from), bytes); });
    },
    [](void* stream) { stream_of(stream).record()->wait(); },
    [](void* stream) -> void* {
      auto* const event = new FakeEvent;
      event->record(stream_of(stream));
      return event;
    },
    [](void* event, void* stream) { static_cast<FakeEvent*>(event)->record(stream_of(stream)); },
    [](void* event) { delete static_cast<FakeEvent*>(event); },
    [](void* stream) { stream_of(stream).capture(true); },
    [](void* stream) { stream_of(stream).capture(false); },
};

constexpr ronde_fake_controls kControls{
    [] { State::instance().reset(); },
    [](const char* what, std::int32_t value) { State::instance().set(what, value); },
    [](const char* what) { return State::instance().get(what); },
    [](std::int32_t device) { set_current_device(device); },
    [] { return static_cast<std::int32_t>(current_device()); },
    [](std::int32_t mode) { set_capture_mode(mode); },
    [] { return static_cast<std::int32_t>(capture_mode()); },
    [](char* text, std::size_t bytes) {
      const std::string trace = State::instance().trace();
      if (bytes > 0) text[trace.copy(text, bytes - 1)] = '\0';
      return trace.size();
    },
};

}  // namespace
}  // namespace ronde::fake

extern "C" {
__attribute__((visibility("default"))) const ronde_plugin* ronde_plugin_entry() {
  return &ronde::collectives::cuda::plugin_table();
}
__attribute__((visibility("default"))) const ronde_device_kit* ronde_device_kit_entry() {
  return &ronde::fake::kKit;
}
__attribute__((visibility("default"))) const ronde_fake_controls* ronde_fake_controls_entry() {
  return &ronde::fake::kControls;
}
}
