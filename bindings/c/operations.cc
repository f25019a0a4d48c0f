// SPDX-License-Identifier: Apache-2.0
// The operations of the C ABI: each comes in a form that returns a work and one that waits.
#include <ronde/ronde.h>

#include <memory>
#include <utility>

#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "runtime/engine/engine.h"

using ronde::base::Result;
using ronde::base::Status;
using ronde::bindings::defaults_of;
using ronde::bindings::guarded;
using ronde::bindings::init_sized;
using ronde::bindings::null_argument;
using ronde::bindings::translate;
using ronde::bindings::translate_group;
using ronde::runtime::Operation;
using ronde::runtime::Submission;

namespace {

// Which engine runs a call, where its work goes, and whether it waits.
struct Call {
  ronde_engine* engine;
  ronde_work** work;  // NULL: the caller gets none
  bool waits;
};

Status submit(const Call& call, Result<Submission> submission) {
  RONDE_RETURN_IF_ERROR(submission.status());
  submission->will_wait = submission->will_wait || call.waits;
  auto handle = std::make_unique<ronde_work>();
  RONDE_ASSIGN_OR_RETURN(auto submitted, call.engine->engine->submit(std::move(*submission)));
  handle->engine = call.engine->engine;
  handle->work = std::move(submitted);
  if (call.waits) RONDE_RETURN_IF_ERROR(handle->engine->wait(*handle->work));
  if (call.work != nullptr) *call.work = handle.release();
  return {};
}

// Submits the submission that `make` returns.
template <typename Make>
ronde_status run(const Call& call, ronde_error** error, Make&& make) {
  return guarded(error, [&]() -> Status {
    if (call.engine == nullptr) return null_argument("engine");
    return submit(call, std::forward<Make>(make)());
  });
}

ronde_status start(ronde_engine* engine, Operation operation, const ronde_request* request,
                   ronde_work** work, ronde_error** error) {
  return run({engine, work, false}, error, [&]() -> Result<Submission> {
    if (work == nullptr) return null_argument("work");
    return translate(operation, request);
  });
}

ronde_status finish(ronde_engine* engine, Operation operation, const ronde_request* request,
                    ronde_error** error) {
  return run({engine, nullptr, true}, error, [&] { return translate(operation, request); });
}

// Waits, and hands out the work, which holds the result.
ronde_status fetch(ronde_engine* engine, Operation operation, const ronde_request* request,
                   ronde_work** work, ronde_error** error) {
  return run({engine, work, true}, error, [&]() -> Result<Submission> {
    if (work == nullptr) return null_argument("work");
    return translate(operation, request);
  });
}

ronde_status start_group(ronde_engine* engine, Operation operation, const ronde_request* requests,
                         int32_t count, ronde_work** work, ronde_error** error) {
  return run({engine, work, false}, error, [&]() -> Result<Submission> {
    if (work == nullptr) return null_argument("work");
    return translate_group(operation, requests, count);
  });
}

ronde_status finish_group(ronde_engine* engine, Operation operation, const ronde_request* requests,
                          int32_t count, ronde_error** error) {
  return run({engine, nullptr, true}, error,
             [&] { return translate_group(operation, requests, count); });
}

}  // namespace

extern "C" {

void ronde_request_init_sized(ronde_request* request, size_t struct_size) {
  init_sized(request, struct_size);
}

ronde_status ronde_allreduce_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return start(engine, Operation::kAllreduce, request, work, error);
}

ronde_status ronde_allreduce(ronde_engine* engine, const ronde_request* request,
                             ronde_error** error) {
  return finish(engine, Operation::kAllreduce, request, error);
}

ronde_status ronde_allreduce_flat(ronde_engine* engine, const char* name, void* data, int64_t count,
                                  ronde_dtype dtype, ronde_op op, ronde_error** error) {
  ronde_request request = defaults_of<ronde_request>();
  request.name = name;
  request.output = data;
  request.shape = &count;
  request.dimensions = 1;
  request.dtype = static_cast<int32_t>(dtype);
  request.op = static_cast<int32_t>(op);
  return finish(engine, Operation::kAllreduce, &request, error);
}

ronde_status ronde_broadcast_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return start(engine, Operation::kBroadcast, request, work, error);
}

ronde_status ronde_broadcast(ronde_engine* engine, const ronde_request* request,
                             ronde_error** error) {
  return finish(engine, Operation::kBroadcast, request, error);
}

ronde_status ronde_allgather_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return start(engine, Operation::kAllgather, request, work, error);
}

ronde_status ronde_allgather(ronde_engine* engine, const ronde_request* request, ronde_work** work,
                             ronde_error** error) {
  return fetch(engine, Operation::kAllgather, request, work, error);
}

ronde_status ronde_reduce_scatter_async(ronde_engine* engine, const ronde_request* request,
                                        ronde_work** work, ronde_error** error) {
  return start(engine, Operation::kReduceScatter, request, work, error);
}

ronde_status ronde_reduce_scatter(ronde_engine* engine, const ronde_request* request,
                                  ronde_error** error) {
  return finish(engine, Operation::kReduceScatter, request, error);
}

ronde_status ronde_all_to_all_async(ronde_engine* engine, const ronde_request* request,
                                    ronde_work** work, ronde_error** error) {
  return start(engine, Operation::kAllToAll, request, work, error);
}

ronde_status ronde_all_to_all(ronde_engine* engine, const ronde_request* request, ronde_work** work,
                              ronde_error** error) {
  return fetch(engine, Operation::kAllToAll, request, work, error);
}

ronde_status ronde_barrier_async(ronde_engine* engine, const ronde_request* request,
                                 ronde_work** work, ronde_error** error) {
  return start(engine, Operation::kBarrier, request, work, error);
}

ronde_status ronde_barrier(ronde_engine* engine, const ronde_request* request,
                           ronde_error** error) {
  return finish(engine, Operation::kBarrier, request, error);
}

ronde_status ronde_grouped_allreduce_async(ronde_engine* engine, const ronde_request* requests,
                                           int32_t count, ronde_work** work, ronde_error** error) {
  return start_group(engine, Operation::kAllreduce, requests, count, work, error);
}

ronde_status ronde_grouped_allreduce(ronde_engine* engine, const ronde_request* requests,
                                     int32_t count, ronde_error** error) {
  return finish_group(engine, Operation::kAllreduce, requests, count, error);
}

ronde_status ronde_grouped_broadcast_async(ronde_engine* engine, const ronde_request* requests,
                                           int32_t count, ronde_work** work, ronde_error** error) {
  return start_group(engine, Operation::kBroadcast, requests, count, work, error);
}

ronde_status ronde_grouped_broadcast(ronde_engine* engine, const ronde_request* requests,
                                     int32_t count, ronde_error** error) {
  return finish_group(engine, Operation::kBroadcast, requests, count, error);
}

}  // extern "C"
