// SPDX-License-Identifier: Apache-2.0
// The C ABI over the runtime's engine: checks what comes in, translates errors, holds the handles.
#include <ronde/ronde.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "bindings/c/request.h"
#include "runtime/engine.h"
#include "runtime/local_job.h"

using ronde::base::Code;
using ronde::base::Status;
using ronde::bindings::null_argument;
using ronde::bindings::read_struct;
using ronde::bindings::translate;
using ronde::runtime::Engine;
using ronde::runtime::Operation;

// The two must not drift apart.
static_assert(RONDE_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(RONDE_CLOSED == static_cast<int>(Code::kClosed));

struct ronde_error {
  ronde_status status;
  std::string message;
  std::string place;
  int32_t rank;
};

struct ronde_local_job {
  std::shared_ptr<ronde::runtime::LocalJob> job;
};

struct ronde_engine {
  std::shared_ptr<Engine> engine;
  pid_t pid;
};

struct ronde_work {
  std::shared_ptr<Engine> engine;
  Engine::WorkPtr work;
};

namespace {

// Without memory for the text the code alone must do.
ronde_status report(const Status& status, ronde_error** error) noexcept {
  const auto code = static_cast<ronde_status>(status.code());
  if (status.ok() || error == nullptr) return code;
  try {
    *error = new ronde_error{code, status.message(), status.place(), status.rank().value_or(-1)};
  } catch (...) {
    *error = nullptr;
  }
  return code;
}

// No exception may leave through the C ABI; what can be thrown inside is a lack of memory.
template <typename F>
ronde_status guarded(ronde_error** error, F&& body) noexcept {
  try {
    return report(body(), error);
  } catch (const std::bad_alloc&) {
    if (error != nullptr) *error = nullptr;
    return RONDE_OUT_OF_MEMORY;
  } catch (...) {
    if (error != nullptr) *error = nullptr;
    return RONDE_INTERNAL;
  }
}

Status submit(ronde_engine* engine, Operation operation, const ronde_request* request,
              ronde_work** work, bool will_wait) {
  if (engine == nullptr) return null_argument("engine");
  if (work == nullptr) return null_argument("work");
  auto submission = translate(operation, request);
  RONDE_RETURN_IF_ERROR(submission.status());
  submission->will_wait = submission->will_wait || will_wait;
  auto handle = std::make_unique<ronde_work>();
  auto submitted = engine->engine->submit(std::move(*submission));
  RONDE_RETURN_IF_ERROR(submitted.status());
  handle->engine = engine->engine;
  handle->work = std::move(*submitted);
  *work = handle.release();
  return {};
}

ronde_status submit_async(ronde_engine* engine, Operation operation, const ronde_request* request,
                          ronde_work** work, ronde_error** error) {
  return guarded(error, [&] { return submit(engine, operation, request, work, false); });
}

Status submit_and_wait(ronde_engine* engine, Operation operation, const ronde_request* request,
                       ronde_work** work) {
  ronde_work* handle = nullptr;
  RONDE_RETURN_IF_ERROR(submit(engine, operation, request, &handle, true));
  std::unique_ptr<ronde_work> owner(handle);
  RONDE_RETURN_IF_ERROR(owner->engine->wait(*owner->work));
  if (work != nullptr) *work = owner.release();
  return {};
}

}  // namespace

extern "C" {

const char* ronde_version(void) { return "0.1.0"; }

const char* ronde_status_name(ronde_status status) {
  return ronde::base::code_name(static_cast<Code>(status));
}

// ---- errors ----

const char* ronde_error_message(const ronde_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}
const char* ronde_error_place(const ronde_error* error) {
  return error == nullptr ? "" : error->place.c_str();
}
ronde_status ronde_error_status(const ronde_error* error) {
  return error == nullptr ? RONDE_OK : error->status;
}
int32_t ronde_error_rank(const ronde_error* error) { return error == nullptr ? -1 : error->rank; }
void ronde_error_release(ronde_error* error) { delete error; }

// ---- jobs in one process ----

ronde_status ronde_local_job_create(int32_t size, ronde_local_job** job, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (job == nullptr) return null_argument("job");
    auto created = ronde::runtime::LocalJob::create(size);
    RONDE_RETURN_IF_ERROR(created.status());
    *job = new ronde_local_job{std::move(*created)};
    return {};
  });
}

void ronde_local_job_release(ronde_local_job* job) { delete job; }

// ---- engines ----

void ronde_engine_options_init(ronde_engine_options* options) {
  *options = ronde_engine_options{};
  options->struct_size = sizeof(*options);
}

ronde_status ronde_engine_open(const ronde_engine_options* given, ronde_engine** engine,
                               ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    ronde_engine_options options;
    ronde_engine_options_init(&options);
    if (given != nullptr) {
      const auto read = read_struct(given, ronde_engine_options_init, "ronde_engine_options");
      RONDE_RETURN_IF_ERROR(read.status());
      options = *read;
    }
    if (options.flags != 0) return Status::error(Code::kUnsupported, "unknown flags: use 0");
    // Held here, so that the caller may release the job while the engine opens.
    const auto local = options.local_job != nullptr ? options.local_job->job : nullptr;
    const auto open_job = [&](const ronde::base::Config& config, const ronde::base::Clock& clock) {
      return local != nullptr
                 ? local->join(options.local_job_rank, config, clock)
                 : ronde::runtime::open_process_job(options.mpi_communicator, config, clock);
    };
    auto opened = Engine::open(open_job, ronde::base::Config::process_environment(),
                               std::make_shared<ronde::base::SteadyClock>());
    RONDE_RETURN_IF_ERROR(opened.status());
    *engine = new ronde_engine{std::move(*opened), ::getpid()};
    return {};
  });
}

ronde_status ronde_engine_close(ronde_engine* engine, ronde_error** error) {
  if (engine == nullptr) return RONDE_OK;
  // The child of a fork has no background thread to join: it lets go of its copy without a word.
  if (engine->pid != ::getpid()) return RONDE_OK;
  const std::unique_ptr<ronde_engine> owner(engine);
  return guarded(error, [&] { return owner->engine->close(); });
}

int32_t ronde_rank(const ronde_engine* engine) {
  return engine == nullptr ? -1 : engine->engine->rank();
}
int32_t ronde_size(const ronde_engine* engine) {
  return engine == nullptr ? -1 : engine->engine->size();
}
int32_t ronde_local_rank(const ronde_engine* engine) {
  return engine == nullptr ? -1 : engine->engine->local_rank();
}
int32_t ronde_local_size(const ronde_engine* engine) {
  return engine == nullptr ? -1 : engine->engine->local_size();
}

void ronde_statistics_init(ronde_statistics* statistics) {
  *statistics = ronde_statistics{};
  statistics->struct_size = sizeof(*statistics);
}

ronde_status ronde_engine_statistics(const ronde_engine* engine, ronde_statistics* statistics,
                                     ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    const auto read = read_struct(statistics, ronde_statistics_init, "ronde_statistics");
    RONDE_RETURN_IF_ERROR(read.status());
    const ronde::runtime::Statistics now = engine->engine->statistics();
    ronde_statistics result;
    ronde_statistics_init(&result);
    result.struct_size = statistics->struct_size;
    result.batches = now.batches;
    result.tensors = now.tensors;
    result.payload_bytes = now.payload_bytes;
    result.control_bytes = now.control_bytes;
    result.full_requests = now.full_requests;
    result.planned_requests = now.planned_requests;
    result.background_wakes = now.background_wakes;
    std::memcpy(statistics, &result, std::min(result.struct_size, sizeof(result)));
    return {};
  });
}

// ---- operations ----

void ronde_request_init(ronde_request* request) {
  *request = ronde_request{};
  request->struct_size = sizeof(*request);
  request->dtype = RONDE_F32;
  request->op = RONDE_AVERAGE;
  request->prescale = 1.0;
  request->postscale = 1.0;
  request->device = RONDE_DEVICE_CPU;
}

ronde_status ronde_allreduce_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return submit_async(engine, Operation::kAllreduce, request, work, error);
}

ronde_status ronde_allreduce(ronde_engine* engine, const ronde_request* request,
                             ronde_error** error) {
  return guarded(error,
                 [&] { return submit_and_wait(engine, Operation::kAllreduce, request, nullptr); });
}

ronde_status ronde_broadcast_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return submit_async(engine, Operation::kBroadcast, request, work, error);
}

ronde_status ronde_broadcast(ronde_engine* engine, const ronde_request* request,
                             ronde_error** error) {
  return guarded(error,
                 [&] { return submit_and_wait(engine, Operation::kBroadcast, request, nullptr); });
}

ronde_status ronde_allgather_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return submit_async(engine, Operation::kAllgather, request, work, error);
}

ronde_status ronde_allgather(ronde_engine* engine, const ronde_request* request, ronde_work** work,
                             ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    return submit_and_wait(engine, Operation::kAllgather, request, work);
  });
}

ronde_status ronde_barrier_async(ronde_engine* engine, const ronde_request* request,
                                 ronde_work** work, ronde_error** error) {
  return submit_async(engine, Operation::kBarrier, request, work, error);
}

ronde_status ronde_barrier(ronde_engine* engine, const ronde_request* request,
                           ronde_error** error) {
  return guarded(error,
                 [&] { return submit_and_wait(engine, Operation::kBarrier, request, nullptr); });
}

// ---- works ----

ronde_status ronde_work_wait(ronde_work* work, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    return work->engine->wait(*work->work);
  });
}

ronde_status ronde_work_wait_for(ronde_work* work, int64_t timeout_ns, int32_t* done,
                                 ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (done == nullptr) return null_argument("done");
    const auto timeout = std::chrono::nanoseconds(std::max<int64_t>(0, timeout_ns));
    const auto waited = work->engine->wait(*work->work, timeout);
    RONDE_RETURN_IF_ERROR(waited.status());
    *done = *waited ? 1 : 0;
    return *waited ? work->work->status : Status();
  });
}

int32_t ronde_work_poll(const ronde_work* work) {
  return work != nullptr && work->work->completion.done() ? 1 : 0;
}

ronde_status ronde_work_output(const ronde_work* work, const void** data, const int64_t** shape,
                               int32_t* dimensions, int32_t* dtype, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (data == nullptr || shape == nullptr || dimensions == nullptr || dtype == nullptr) {
      return null_argument("data, shape, dimensions or dtype");
    }
    if (!work->work->completion.done()) {
      return Status::error(Code::kInvalidArgument, "the work is not done: wait for it first");
    }
    RONDE_RETURN_IF_ERROR(work->work->status);
    if (work->work->output_shape.empty()) {
      return Status::error(Code::kInvalidArgument,
                           "only an allgather has an output of its own; others write to the "
                           "request's output");
    }
    *data = work->work->output.data();
    *shape = work->work->output_shape.data();
    *dimensions = ronde::base::narrow<int32_t>(work->work->output_shape.size());
    *dtype = static_cast<int32_t>(work->work->output_dtype);
    return {};
  });
}

void ronde_work_release(ronde_work* work) { delete work; }

}  // extern "C"
