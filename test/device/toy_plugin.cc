// SPDX-License-Identifier: Apache-2.0
// A back end for a device that is a few threads of this process: it passes the suite that every
// back end must pass, and shows how one is written. What RONDE_TOY says it does wrong, or slowly:
//   absent              there is no such device
//   staged              it cannot reach the devices of other ranks
//   dead                it can tell nothing about memory and streams any more
//   (these also "... on rank 1")
//   no max              it cannot do that
//   broken              the works of rank 0 fail
//   broken, slow abort  ... and its abort takes a second
//   late streams        a stream can wait for a work when that has begun, and not before
//   staged, slow copies a copy takes 0.6 s, which nothing shortens
#include <unistd.h>

#include <algorithm>
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
#include "test/device/toy_census.h"
#include "test/device/toy_collectives.h"
#include "test/device/toy_memory.h"
#include "test/device/toy_staging.h"
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

constexpr useconds_t kSlowCopy = 600'000;
constexpr useconds_t kSlowAbort = 1'000'000;
constexpr const char* kDead = "the battery is empty";

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
    std::atomic<bool> begun{false};
    bool failed = false;
    std::string why;
  };
  std::shared_ptr<End> end = std::make_shared<End>();
};

struct ronde_plugin_mark {
  std::shared_ptr<ronde::toy::Event> ready;
};

struct ronde_plugin_engine {
  // Why what has not begun never will.
  struct End {
    std::atomic<bool> given_up{false};
    std::string why;  // written before
  };

  ronde_plugin_host host{};
  End end;
  ronde::toy::Staging staging;
  ronde::toy::Owned<ronde_plugin_mark> marks;
  ronde::toy::Owned<ronde_plugin_work> works;
  std::shared_ptr<ronde::toy::Hub>
      hub;  // of the job; nullptr where devices cannot reach each other
  std::uint64_t calls = 0;
  ronde::toy::Stream stream;  // last: its tasks use what is above
};

namespace ronde::toy {
namespace {

using Engine = ronde_plugin_engine;
using Mark = ronde_plugin_mark;
using Work = ronde_plugin_work;

// Behind what was in the tensor's stream when it was marked.
void wait_for_ready(Engine& engine, const ronde_plugin_tensor& tensor) {
  if (tensor.ready == nullptr) return;
  engine.stream.put(
      [ready = tensor.ready->ready, &engine] { ready->wait_unless(engine.end.given_up); });
}

// The task runs on the engine's stream; its error, if any, is the work's.
template <class Task>
Work* begin(Engine& engine, Task task) {
  auto work = std::make_unique<Work>();
  engine.stream.put([end = work->end, &engine, task = std::move(task)] {
    const ronde_plugin_host& host = engine.host;
    end->begun.store(true);
    host.ring(host.context);
    end->why = task(engine.end.given_up.load() ? engine.end.why : std::string());
    end->failed = !end->why.empty();
    end->over.set();
    host.ring(host.context);
  });
  return engine.works.keep(std::move(work));
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
  if (status != RONDE_PLUGIN_OK) {
    delete mine.hub;  // an allgather fails on all ranks, so nobody has heard of it
    return status;
  }
  const bool together =
      std::all_of(all.begin(), all.end(), [&mine](const Who& who) { return who.pid == mine.pid; });
  if (together) {
    engine->hub = Hub::take(all.front().hub);
  } else {
    delete mine.hub;
  }
  const bool staged = is_set_to("staged", host->rank) || is_set_to("staged, slow copies");
  info->has_collectives = together && !staged ? 1 : 0;
  info->device = 0;
  std::snprintf(info->versions, sizeof info->versions, "toy 1.0");
  Census::instance().open(engine.get());
  *result = engine.release();
  return RONDE_PLUGIN_OK;
}

// What has not begun never will; what waits for another rank is given up; copies come to their end.
void give_up(Engine& engine, const char* why) {
  if (!engine.end.given_up.load()) engine.end.why = why;
  engine.end.given_up.store(true);
  if (engine.hub != nullptr) engine.hub->abort(why);
}

void abort_engine(Engine* engine, const char* why) {
  const bool slow = engine->host.rank == 0 && is_set_to("broken, slow abort");
  if (slow) ::usleep(kSlowAbort);
  give_up(*engine, why);
  if (slow) engine->host.log(engine->host.context, 4, "the toy has been aborted");
}

void close(Engine* engine) {
  Census::instance().close(engine);
  give_up(*engine, "the engine was closed");
  delete engine;
}

ronde_plugin_status classify(Engine* engine, const void* pointer, ronde_plugin_memory* memory,
                             char* text, std::size_t bytes) {
  Census::instance().expect_open(engine, "classify");
  if (is_set_to("dead", engine->host.rank)) return say(RONDE_PLUGIN_FAILED, text, bytes, kDead);
  const auto place = Memory::instance().find(pointer);
  memory->kind = !place           ? RONDE_MEMORY_HOST
                 : place->managed ? RONDE_MEMORY_MANAGED
                                  : RONDE_MEMORY_DEVICE;
  memory->device = place ? 0 : -1;
  return RONDE_PLUGIN_OK;
}

ronde_plugin_status check_stream(Engine* engine, void* stream, char* text, std::size_t bytes) {
  Census::instance().expect_open(engine, "check_stream");
  if (is_set_to("dead", engine->host.rank)) return say(RONDE_PLUGIN_FAILED, text, bytes, kDead);
  if (!stream_of(stream).captures()) return RONDE_PLUGIN_OK;
  return say(RONDE_PLUGIN_INVALID, text, bytes,
             "the stream is under graph capture: end the capture before the tensor is submitted");
}

ronde_plugin_status mark(Engine* engine, void* stream, void* ready_event, Mark** result,
                         char* /*text*/, std::size_t /*bytes*/) {
  Census::instance().expect_open(engine, "mark");
  Census::instance().count_mark(1);
  auto made = std::make_unique<Mark>();
  made->ready = ready_event != nullptr ? *static_cast<std::shared_ptr<Event>*>(ready_event)
                                       : stream_of(stream).record();
  *result = engine->marks.keep(std::move(made));
  return RONDE_PLUGIN_OK;
}

void unmark(Engine* engine, Mark* mark) {
  Census::instance().expect_open(engine, "unmark");
  Census::instance().count_mark(-1);
  engine->marks.free(mark);
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
  const bool broken = is_set_to("broken") || is_set_to("broken, slow abort");
  *work = begin(*engine,
                [hub = engine->hub, call = std::move(call),
                 broken](const std::string& given_up) -> std::string {
                  if (!given_up.empty()) return given_up;
                  return call.rank == 0 && broken ? "a wheel has come off" : hub->run(call);
                });
  return RONDE_PLUGIN_OK;
}

ronde_plugin_status poll(Engine* /*engine*/, Work* work, char* text, std::size_t bytes) {
  if (!work->end->over.is_over()) return RONDE_PLUGIN_PENDING;
  return work->end->failed ? say(RONDE_PLUGIN_FAILED, text, bytes, work->end->why)
                           : RONDE_PLUGIN_OK;
}

ronde_plugin_status wait_on(Engine* engine, Work* work, void* stream, char* /*text*/,
                            std::size_t /*bytes*/) {
  Census::instance().expect_open(engine, "wait_on");
  if (is_set_to("late streams") && !work->end->begun.load()) return RONDE_PLUGIN_PENDING;
  stream_of(stream).put([end = work->end] { end->over.wait(); });
  return RONDE_PLUGIN_OK;
}

void release(Engine* engine, Work* work) { engine->works.free(work); }

ronde_plugin_status allocate_host(Engine* engine, std::size_t bytes, void** memory, char* text,
                                  std::size_t text_bytes) {
  *memory = engine->staging.allocate(std::max<std::size_t>(bytes, 1));
  if (*memory != nullptr) return RONDE_PLUGIN_OK;
  return say(RONDE_PLUGIN_INVALID, text, text_bytes, "no host memory left");
}

void free_host(Engine* engine, void* memory) {
  if (engine->staging.free(memory)) return;
  engine->host.log(engine->host.context, 4, "host memory was given back under a copy");
}

ronde_plugin_status copy(Engine* engine, const ronde_plugin_copy* what, bool out, Work** work) {
  const auto size = static_cast<std::size_t>(size_of_dtype(what->dtype));
  const void* const end = out ? what->tensor->input : what->tensor->output;
  std::byte* const device =
      Memory::instance().view(end) + static_cast<std::size_t>(what->begin) * size;
  const std::size_t bytes = static_cast<std::size_t>(what->elements) * size;
  if (out) wait_for_ready(*engine, *what->tensor);
  engine->staging.begin(what->host);
  *work = begin(*engine, [device, bytes, host = what->host, out,
                          &staging = engine->staging](const std::string& given_up) {
    if (given_up.empty() && bytes > 0) {
      if (is_set_to("staged, slow copies")) ::usleep(kSlowCopy);
      std::memcpy(out ? host : device, out ? device : host, bytes);
    }
    staging.end(host);
    return given_up;
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
                              mark,
                              unmark,
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
    [](void* event, void* stream) {
      *static_cast<std::shared_ptr<Event>*>(event) = stream_of(stream).record();
    },
    [](void* event) { delete static_cast<std::shared_ptr<Event>*>(event); },
    [](void* stream) { stream_of(stream).capture(true); },
    [](void* stream) { stream_of(stream).capture(false); },
};

}  // namespace
}  // namespace ronde::toy

extern "C" {
// For tests of the toy alone: the marks that there are now, and how many there have been.
__attribute__((visibility("default"))) std::int32_t ronde_toy_marks(std::int32_t* made) {
  return ronde::toy::Census::instance().marks(made);
}
__attribute__((visibility("default"))) const ronde_plugin* ronde_plugin_entry() {
  return &ronde::toy::kTable;
}
__attribute__((visibility("default"))) const ronde_device_kit* ronde_device_kit_entry() {
  return &ronde::toy::kKit;
}
}
