// SPDX-License-Identifier: Apache-2.0
// A back end for a device that is a few threads of this process: it passes the suite that every
// back end must pass, and shows how one is written. RONDE_TOY=absent: there is no such device;
// staged: it cannot reach the devices of other ranks.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "collectives/device/plugin.h"
#include "test/device/kit.h"
#include "test/device/toy_collectives.h"
#include "test/device/toy_memory.h"
#include "test/device/toy_stream.h"

namespace ronde::toy {
namespace {

ronde_plugin_status say(ronde_plugin_status status, char* text, std::size_t bytes,
                        const std::string& why) {
  std::snprintf(text, bytes, "%s", why.c_str());
  return status;
}

Stream& default_stream() {
  static auto* const kStream = new Stream;  // outlives whatever is put into it
  return *kStream;
}

Stream& stream_of(void* stream) {
  return stream == nullptr ? default_stream() : *static_cast<Stream*>(stream);
}

bool is_set_to(const char* word) {
  const char* const value = std::getenv("RONDE_TOY");
  return value != nullptr && std::strcmp(value, word) == 0;
}
// On all ranks, or on rank 1 alone.
bool is_set_to(const std::string& word, std::int32_t rank) {
  return is_set_to(word.c_str()) || (rank == 1 && is_set_to((word + " on rank 1").c_str()));
}

}  // namespace
}  // namespace ronde::toy

// What a work ends with is written before it is over, and read after.
struct ronde_plugin_work {
  struct End {
    ronde::toy::Event over;
    bool failed = false;
    std::string why;
  };
  std::shared_ptr<End> end = std::make_shared<End>();
};

struct ronde_plugin_engine {
  ronde_plugin_host host{};
  std::shared_ptr<ronde::toy::Hub>
      hub;  // of the job; nullptr where devices cannot reach each other
  std::uint64_t calls = 0;
  ronde::toy::Stream stream;  // last: its tasks use what is above
};

namespace ronde::toy {
namespace {

using Engine = ronde_plugin_engine;
using Work = ronde_plugin_work;

// Behind what the tensor's stream holds now, or its event.
void wait_for_ready(Engine& engine, const ronde_plugin_tensor& tensor) {
  const std::shared_ptr<Event> ready =
      tensor.ready_event != nullptr ? *static_cast<std::shared_ptr<Event>*>(tensor.ready_event)
                                    : stream_of(tensor.stream).record();
  engine.stream.put([ready] { ready->wait(); });
}

// The task runs on the engine's stream; its error, if any, is the work's.
template <class Task>
Work* begin(Engine& engine, Task task) {
  auto work = std::make_unique<Work>();
  engine.stream.put([end = work->end, host = engine.host, task = std::move(task)] {
    end->why = task();
    end->failed = !end->why.empty();
    end->over.set();
    host.ring(host.context);
  });
  return work.release();
}

struct Who {
  std::int32_t pid;
  Hub* hub;
};

ronde_plugin_status open(const ronde_plugin_host* host, Engine** result, ronde_plugin_info* info,
                         char* text, std::size_t bytes) {
  if (is_set_to("absent", host->rank)) {
    return say(RONDE_PLUGIN_UNAVAILABLE, text, bytes, "no toy is plugged in");
  }
  auto engine = std::make_unique<Engine>();
  engine->host = *host;
  Who mine{::getpid(), host->rank == 0 ? Hub::make(host->size) : nullptr};
  std::vector<Who> all(static_cast<std::size_t>(host->size));
  const auto status = host->allgather(host->context, &mine, sizeof mine, all.data(), text, bytes);
  if (status != RONDE_PLUGIN_OK) return status;
  const bool together =
      std::all_of(all.begin(), all.end(), [&mine](const Who& who) { return who.pid == mine.pid; });
  if (together) engine->hub = Hub::take(all.front().hub);
  info->has_collectives = together && !is_set_to("staged", host->rank) ? 1 : 0;
  info->device = 0;
  std::snprintf(info->versions, sizeof info->versions, "toy 1.0");
  *result = engine.release();
  return RONDE_PLUGIN_OK;
}

void abort_engine(Engine* engine, const char* why) {
  if (engine->hub != nullptr) engine->hub->abort(why);
}

// Whatever waits for another rank is given up.
void close(Engine* engine) {
  abort_engine(engine, "the engine was closed");
  delete engine;
}

ronde_plugin_status classify(Engine* /*engine*/, const void* pointer, ronde_plugin_memory* memory,
                             char* /*text*/, std::size_t /*bytes*/) {
  const auto place = Memory::instance().find(pointer);
  memory->kind = !place           ? RONDE_MEMORY_HOST
                 : place->managed ? RONDE_MEMORY_MANAGED
                                  : RONDE_MEMORY_DEVICE;
  memory->device = place ? 0 : -1;
  return RONDE_PLUGIN_OK;
}

ronde_plugin_status check_stream(Engine* /*engine*/, void* stream, char* text, std::size_t bytes) {
  if (!stream_of(stream).captures()) return RONDE_PLUGIN_OK;
  return say(RONDE_PLUGIN_INVALID, text, bytes,
             "the stream is under graph capture: end the capture before the tensor is submitted");
}

ronde_plugin_status execute(Engine* engine, const ronde_plugin_batch* batch, Work** work,
                            char* text, std::size_t bytes) {
  if (engine->hub == nullptr) {
    return say(RONDE_PLUGIN_INVALID, text, bytes, "the devices cannot reach each other");
  }
  if (is_set_to("no max") && batch->op == static_cast<std::int32_t>(base::ReduceOp::kMax)) {
    return say(RONDE_PLUGIN_INVALID, text, bytes, "a toy knows no max");
  }
  Call call;
  call.number = engine->calls++;
  call.rank = engine->host.rank;
  call.batch = *batch;
  call.tensors.assign(batch->tensors, batch->tensors + batch->tensor_count);
  for (ronde_plugin_tensor& tensor : call.tensors) {
    wait_for_ready(*engine, tensor);
    tensor.input = tensor.input == nullptr ? nullptr : Memory::instance().view(tensor.input);
    tensor.output = tensor.output == nullptr ? nullptr : Memory::instance().view(tensor.output);
  }
  *work = begin(*engine, [hub = engine->hub, call = std::move(call)] {
    return call.rank == 0 && is_set_to("broken") ? "a wheel has come off" : hub->run(call);
  });
  return RONDE_PLUGIN_OK;
}

ronde_plugin_status poll(Engine* /*engine*/, Work* work, char* text, std::size_t bytes) {
  if (!work->end->over.is_over()) return RONDE_PLUGIN_PENDING;
  return work->end->failed ? say(RONDE_PLUGIN_FAILED, text, bytes, work->end->why)
                           : RONDE_PLUGIN_OK;
}

ronde_plugin_status wait_on(Engine* /*engine*/, Work* work, void* stream, char* /*text*/,
                            std::size_t /*bytes*/) {
  stream_of(stream).put([end = work->end] { end->over.wait(); });
  return RONDE_PLUGIN_OK;
}

void release(Engine* /*engine*/, Work* work) { delete work; }

ronde_plugin_status allocate_host(Engine* /*engine*/, std::size_t bytes, void** memory, char* text,
                                  std::size_t text_bytes) {
  *memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (*memory != nullptr) return RONDE_PLUGIN_OK;
  return say(RONDE_PLUGIN_INVALID, text, text_bytes, "no host memory left");
}

void free_host(Engine* /*engine*/, void* memory) { std::free(memory); }

ronde_plugin_status copy(Engine* engine, const ronde_plugin_copy* what, bool out, Work** work) {
  const auto size = static_cast<std::size_t>(size_of_dtype(what->dtype));
  const void* const end = out ? what->tensor->input : what->tensor->output;
  std::byte* const device =
      Memory::instance().view(end) + static_cast<std::size_t>(what->begin) * size;
  const std::size_t bytes = static_cast<std::size_t>(what->elements) * size;
  if (out) wait_for_ready(*engine, *what->tensor);
  *work = begin(*engine, [device, bytes, host = what->host, out] {
    if (bytes > 0) std::memcpy(out ? host : device, out ? device : host, bytes);
    return std::string();
  });
  return RONDE_PLUGIN_OK;
}

ronde_plugin_status copy_out(Engine* engine, const ronde_plugin_copy* what, Work** work,
                             char* /*text*/, std::size_t /*bytes*/) {
  return copy(engine, what, true, work);
}

ronde_plugin_status copy_in(Engine* engine, const ronde_plugin_copy* what, Work** work,
                            char* /*text*/, std::size_t /*bytes*/) {
  return copy(engine, what, false, work);
}

ronde_plugin_status allocate(Engine* /*engine*/, std::size_t bytes, void** memory,
                             std::int32_t* device, char* text, std::size_t text_bytes) {
  *memory = Memory::instance().allocate(bytes, false);
  *device = 0;
  if (*memory != nullptr) return RONDE_PLUGIN_OK;
  return say(RONDE_PLUGIN_INVALID, text, text_bytes, "no device memory left");
}

void free_memory(std::int32_t /*device*/, void* memory) { Memory::instance().free(memory); }

constexpr ronde_plugin kTable{RONDE_PLUGIN_VERSION,
                              "toy",
                              sizeof(ronde_plugin),
                              open,
                              close,
                              abort_engine,
                              classify,
                              check_stream,
                              execute,
                              poll,
                              wait_on,
                              release,
                              allocate_host,
                              free_host,
                              copy_out,
                              copy_in,
                              allocate,
                              free_memory};

// ---- the device as a program sees it ----

void kit_write(void* device, const void* host, std::size_t bytes, void* stream) {
  stream_of(stream).put([=] { std::memcpy(Memory::instance().view(device), host, bytes); });
  stream_of(stream).record()->wait();
}

void kit_read(void* host, const void* device, std::size_t bytes, void* stream) {
  stream_of(stream).put([=] { std::memcpy(host, Memory::instance().view(device), bytes); });
  stream_of(stream).record()->wait();
}

constexpr ronde_device_kit kKit{
    sizeof(ronde_device_kit),
    [](std::size_t bytes) { return Memory::instance().allocate(bytes, false); },
    [](std::size_t bytes) { return Memory::instance().allocate(bytes, true); },
    [](void* memory) { Memory::instance().free(memory); },
    kit_write,
    kit_read,
    []() -> void* { return new Stream; },
    [](void* stream) { delete static_cast<Stream*>(stream); },
    [](void* stream, std::int32_t milliseconds) {
      stream_of(stream).put(
          [milliseconds] { ::usleep(static_cast<useconds_t>(milliseconds) * 1000); });
    },
    [](void* stream, void* to, const void* from, std::size_t bytes) {
      stream_of(stream).put(
          [=] { std::memcpy(Memory::instance().view(to), Memory::instance().view(from), bytes); });
    },
    [](void* stream) { stream_of(stream).record()->wait(); },
    [](void* stream) -> void* { return new std::shared_ptr<Event>(stream_of(stream).record()); },
    [](void* event) { delete static_cast<std::shared_ptr<Event>*>(event); },
    [](void* stream) { stream_of(stream).capture(true); },
    [](void* stream) { stream_of(stream).capture(false); },
};

}  // namespace
}  // namespace ronde::toy

extern "C" {
__attribute__((visibility("default"))) const ronde_plugin* ronde_plugin_entry() {
  return &ronde::toy::kTable;
}
__attribute__((visibility("default"))) const ronde_device_kit* ronde_device_kit_entry() {
  return &ronde::toy::kKit;
}
}
