// SPDX-License-Identifier: Apache-2.0
// Implements the functions of plugin.h by calls of an engine; no exception leaves them.
#include "collectives/cuda/plugin_table.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "collectives/cuda/engine.h"
#include "collectives/cuda/platform.h"

using ronde::collectives::cuda::Engine;
using ronde::collectives::cuda::Task;

struct ronde_plugin_work {
  std::shared_ptr<Task> task;
};

namespace {

// Owns the objects that a caller holds, until it releases them or the engine is closed. Thread
// safety: any thread may call all functions.
template <class T>
class Given {
 public:
  T* keep(std::unique_ptr<T> one) {
    T* const given = one.get();
    const std::lock_guard lock(mutex_);
    all_.emplace(given, std::move(one));
    return given;
  }
  void drop(T* given) {
    std::unique_ptr<T> last;
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(given);
    if (found == all_.end()) return;
    last = std::move(found->second);
    all_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const T*, std::unique_ptr<T>> all_;
};

}  // namespace

struct ronde_plugin_engine {
  // First, so that it is destroyed last: the others give memory back to it.
  std::unique_ptr<Engine> engine;
  Given<ronde_plugin_work> works;
  Given<ronde_plugin_mark> marks;
};

namespace ronde::collectives::cuda {

namespace {

using base::Code;

// Where a function writes the reason of a failure.
struct Text {
  char* memory;
  std::size_t bytes;
};

ronde_plugin_status report(Text text, ronde_plugin_status status, const std::string& why) {
  if (text.bytes > 0) std::snprintf(text.memory, text.bytes, "%s", why.c_str());
  return status;
}

ronde_plugin_status answer(Text text, const base::Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return RONDE_PLUGIN_OK;
    case Code::kUnsupported:
      return report(text, RONDE_PLUGIN_UNAVAILABLE, status.message());
    case Code::kInvalidArgument:
      return report(text, RONDE_PLUGIN_INVALID, status.message());
    default:
      return report(text, RONDE_PLUGIN_FAILED, status.message());
  }
}

// Turns exceptions (there is no memory left) into a status.
template <class Function>
ronde_plugin_status guarded(Text text, Function&& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    return report(text, RONDE_PLUGIN_FAILED, error.what());
  } catch (...) {
    return report(text, RONDE_PLUGIN_FAILED, "an unknown exception");
  }
}

ronde_plugin_status start(Text text, ronde_plugin_engine* engine,
                          base::Result<std::shared_ptr<Task>> task, ronde_plugin_work** work) {
  if (!task.ok()) return answer(text, task.status());
  *work =
      engine->works.keep(std::make_unique<ronde_plugin_work>(ronde_plugin_work{std::move(*task)}));
  return RONDE_PLUGIN_OK;
}

ronde_plugin_status open(const ronde_plugin_host* host, ronde_plugin_engine** engine,
                         ronde_plugin_info* info, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    auto opened = Engine::open(*host);
    if (!opened.ok()) return answer({text, bytes}, opened.status());
    info->has_collectives = opened->has_collectives ? 1 : 0;
    info->device = opened->device.device;
    std::snprintf(info->versions, sizeof info->versions, "%s, %s, %s",
                  opened->device.versions.c_str(), opened->nccl.c_str(),
                  opened->device.name.c_str());
    auto given = std::make_unique<ronde_plugin_engine>();
    given->engine = std::move(opened->engine);
    *engine = given.release();
    return RONDE_PLUGIN_OK;
  });
}

void close(ronde_plugin_engine* engine) {
  char ignored[1];
  (void)guarded({ignored, sizeof ignored}, [&] {
    const std::unique_ptr<ronde_plugin_engine> owner(engine);
    return RONDE_PLUGIN_OK;
  });
}

void abort_engine(ronde_plugin_engine* engine, const char* why) {
  char ignored[1];
  (void)guarded({ignored, sizeof ignored}, [&] {
    engine->engine->abort(why);
    return RONDE_PLUGIN_OK;
  });
}

ronde_plugin_status classify(ronde_plugin_engine* engine, const void* pointer,
                             ronde_plugin_memory* memory, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    const auto place = engine->engine->place_of(pointer);
    if (!place.ok()) return answer({text, bytes}, place.status());
    memory->kind = place->kind == MemoryKind::kHost     ? RONDE_MEMORY_HOST
                   : place->kind == MemoryKind::kDevice ? RONDE_MEMORY_DEVICE
                                                        : RONDE_MEMORY_MANAGED;
    memory->device = place->device;
    return RONDE_PLUGIN_OK;
  });
}

ronde_plugin_status check_stream(ronde_plugin_engine* engine, void* stream, char* text,
                                 std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    return answer({text, bytes}, engine->engine->check_stream(static_cast<Stream>(stream)));
  });
}

ronde_plugin_status mark(ronde_plugin_engine* engine, void* stream, void* ready_event,
                         ronde_plugin_mark** result, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    auto made = engine->engine->mark(static_cast<Stream>(stream), static_cast<Event>(ready_event));
    if (!made.ok()) return answer({text, bytes}, made.status());
    *result = engine->marks.keep(std::move(*made));
    return RONDE_PLUGIN_OK;
  });
}

void unmark(ronde_plugin_engine* engine, ronde_plugin_mark* mark) { engine->marks.drop(mark); }

ronde_plugin_status execute(ronde_plugin_engine* engine, const ronde_plugin_batch* batch,
                            ronde_plugin_work** work, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    return start({text, bytes}, engine, engine->engine->execute(*batch), work);
  });
}

ronde_plugin_status poll(ronde_plugin_engine* engine, ronde_plugin_work* work, char* text,
                         std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    const auto over = engine->engine->poll(*work->task);
    if (!over.ok()) return answer({text, bytes}, over.status());
    return *over ? RONDE_PLUGIN_OK : RONDE_PLUGIN_PENDING;
  });
}

ronde_plugin_status wait_on(ronde_plugin_engine* engine, ronde_plugin_work* work, void* stream,
                            char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    const auto waits = engine->engine->wait_on(*work->task, static_cast<Stream>(stream));
    if (!waits.ok()) return answer({text, bytes}, waits.status());
    return *waits ? RONDE_PLUGIN_OK : RONDE_PLUGIN_PENDING;
  });
}

void release(ronde_plugin_engine* engine, ronde_plugin_work* work) { engine->works.drop(work); }

ronde_plugin_status allocate_host(ronde_plugin_engine* engine, std::size_t size, void** memory,
                                  char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    const auto allocated = engine->engine->allocate_host(size);
    if (!allocated.ok()) return answer({text, bytes}, allocated.status());
    *memory = *allocated;
    return RONDE_PLUGIN_OK;
  });
}

void free_host(ronde_plugin_engine* engine, void* memory) {
  char ignored[1];
  (void)guarded({ignored, sizeof ignored}, [&] {
    engine->engine->free_host(memory);
    return RONDE_PLUGIN_OK;
  });
}

ronde_plugin_status copy_out(ronde_plugin_engine* engine, const ronde_plugin_copy* copy,
                             ronde_plugin_work** work, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    return start({text, bytes}, engine, engine->engine->copy_out(*copy), work);
  });
}

ronde_plugin_status copy_in(ronde_plugin_engine* engine, const ronde_plugin_copy* copy,
                            ronde_plugin_work** work, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    return start({text, bytes}, engine, engine->engine->copy_in(*copy), work);
  });
}

ronde_plugin_status allocate(ronde_plugin_engine* engine, std::size_t size, void** memory,
                             std::int32_t* device, char* text, std::size_t bytes) {
  return guarded({text, bytes}, [&] {
    const auto allocated = engine->engine->allocate(size);
    if (!allocated.ok()) return answer({text, bytes}, allocated.status());
    *memory = *allocated;
    *device = engine->engine->device();
    return RONDE_PLUGIN_OK;
  });
}

void free_memory(std::int32_t device, void* memory) {
  char ignored[1];
  (void)guarded({ignored, sizeof ignored}, [&] {
    free_result(device, memory);
    return RONDE_PLUGIN_OK;
  });
}

}  // namespace

const ronde_plugin& plugin_table() {
  static constexpr ronde_plugin kTable{RONDE_PLUGIN_VERSION,
                                       "cuda",
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
  return kTable;
}

}  // namespace ronde::collectives::cuda
