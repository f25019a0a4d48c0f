// SPDX-License-Identifier: Apache-2.0
// The operations of the C ABI: each comes in a form that returns a work and one that waits.
#include <ronde/ronde.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/operations.h"
#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "collectives/device/plugin.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/prepared.h"

using ronde::base::kOperations;
using ronde::base::Operation;
using ronde::base::Status;
using ronde::bindings::guarded;
using ronde::bindings::null_argument;
using ronde::bindings::translate;
using ronde::bindings::translate_group;

namespace {

// What a caller gets: a work, once the operation is submitted or once it is done, or nothing.
enum class Gets { kWork, kDoneWork, kNothing };

// Every operation is this call. count: of the requests of a group; without it there is one by
// itself.
ronde_status submit(ronde_engine* engine, Operation operation, const ronde_request* requests,
                    std::optional<int32_t> count, Gets gets, ronde_work** work,
                    ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_RETURN_IF_ERROR(ronde::bindings::engine_of(engine).status());
    if (gets != Gets::kNothing && work == nullptr) return null_argument("work");
    RONDE_ASSIGN_OR_RETURN(auto submission, count ? translate_group(operation, requests, *count)
                                                  : translate(operation, requests));
    if (gets == Gets::kNothing) return engine->engine->run(std::move(submission));
    const bool waits = gets != Gets::kWork;
    submission.will_wait = submission.will_wait || waits;
    auto handle = std::make_unique<ronde_work>();
    RONDE_ASSIGN_OR_RETURN(auto submitted, engine->engine->submit(std::move(submission)));
    if (waits) RONDE_RETURN_IF_ERROR(engine->engine->wait(*submitted));
    handle->engine = engine->engine;
    handle->work = std::move(submitted);
    *work = handle.release();
    return {};
  });
}

// A barrier of devices is the barrier of a request that names one, and no row of its own. New
// operations come behind it, since the numbers travel between ranks.
constexpr auto kTable = [] {
  std::array<ronde_operation, kOperations.size() - 1> table{};
  std::size_t next = 0;
  for (const auto& row : kOperations) {
    if (row.on_streams) continue;
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the names are literals.
    table[next++] = {row.name.data(),
                     static_cast<int32_t>(row.in),
                     static_cast<int32_t>(row.out),
                     row.reduces,
                     row.has_root,
                     row.fuses};
  }
  return table;
}();
static_assert(static_cast<int>(Operation::kAllreduce) == RONDE_ALLREDUCE);
static_assert(static_cast<int>(Operation::kBarrier) == RONDE_BARRIER);
static_assert(static_cast<int>(Operation::kAllToAll) == RONDE_ALL_TO_ALL);
static_assert(RONDE_BLOCKS == static_cast<int>(ronde::base::Extent::kBlocks));
// Plug-ins know the operations by these numbers.
static_assert(row(Operation::kAllreduce).code == RONDE_PLUGIN_ALLREDUCE);
static_assert(row(Operation::kBroadcast).code == RONDE_PLUGIN_BROADCAST);
static_assert(row(Operation::kAllgather).code == RONDE_PLUGIN_ALLGATHER);
static_assert(row(Operation::kReduceScatter).code == RONDE_PLUGIN_REDUCE_SCATTER);
static_assert(row(Operation::kAllToAll).code == RONDE_PLUGIN_ALL_TO_ALL);
static_assert(row(Operation::kBarrier).code == RONDE_PLUGIN_BARRIER);
static_assert(row(Operation::kDeviceBarrier).code == RONDE_PLUGIN_BARRIER);

}  // namespace

extern "C" {

const ronde_operation* ronde_operation_info(int32_t index) {
  const bool known = index >= 0 && static_cast<std::size_t>(index) < kTable.size();
  return known ? &kTable[static_cast<std::size_t>(index)] : nullptr;
}

void ronde_request_init_sized(ronde_request* request, size_t struct_size) {
  ronde::bindings::init_sized(request, struct_size);
}

ronde_status ronde_allreduce_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kAllreduce, request, std::nullopt, Gets::kWork, work, error);
}

ronde_status ronde_allreduce(ronde_engine* engine, const ronde_request* request,
                             ronde_error** error) {
  return submit(engine, Operation::kAllreduce, request, std::nullopt, Gets::kNothing, nullptr,
                error);
}

ronde_status ronde_allreduce_flat(ronde_engine* engine, const char* name, void* data, int64_t count,
                                  ronde_dtype dtype, ronde_op op, ronde_error** error) {
  ronde_request request = ronde::bindings::defaults_of<ronde_request>();
  request.name = name;
  request.output = data;
  request.shape = &count;
  request.dimensions = 1;
  request.dtype = static_cast<int32_t>(dtype);
  request.op = static_cast<int32_t>(op);
  return submit(engine, Operation::kAllreduce, &request, std::nullopt, Gets::kNothing, nullptr,
                error);
}

ronde_status ronde_broadcast_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kBroadcast, request, std::nullopt, Gets::kWork, work, error);
}

ronde_status ronde_broadcast(ronde_engine* engine, const ronde_request* request,
                             ronde_error** error) {
  return submit(engine, Operation::kBroadcast, request, std::nullopt, Gets::kNothing, nullptr,
                error);
}

ronde_status ronde_allgather_async(ronde_engine* engine, const ronde_request* request,
                                   ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kAllgather, request, std::nullopt, Gets::kWork, work, error);
}

ronde_status ronde_allgather(ronde_engine* engine, const ronde_request* request, ronde_work** work,
                             ronde_error** error) {
  return submit(engine, Operation::kAllgather, request, std::nullopt, Gets::kDoneWork, work, error);
}

ronde_status ronde_reduce_scatter_async(ronde_engine* engine, const ronde_request* request,
                                        ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kReduceScatter, request, std::nullopt, Gets::kWork, work, error);
}

ronde_status ronde_reduce_scatter(ronde_engine* engine, const ronde_request* request,
                                  ronde_error** error) {
  return submit(engine, Operation::kReduceScatter, request, std::nullopt, Gets::kNothing, nullptr,
                error);
}

ronde_status ronde_all_to_all_async(ronde_engine* engine, const ronde_request* request,
                                    ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kAllToAll, request, std::nullopt, Gets::kWork, work, error);
}

ronde_status ronde_all_to_all(ronde_engine* engine, const ronde_request* request, ronde_work** work,
                              ronde_error** error) {
  return submit(engine, Operation::kAllToAll, request, std::nullopt, Gets::kDoneWork, work, error);
}

ronde_status ronde_barrier_async(ronde_engine* engine, const ronde_request* request,
                                 ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kBarrier, request, std::nullopt, Gets::kWork, work, error);
}

ronde_status ronde_barrier(ronde_engine* engine, const ronde_request* request,
                           ronde_error** error) {
  return submit(engine, Operation::kBarrier, request, std::nullopt, Gets::kNothing, nullptr, error);
}

ronde_status ronde_grouped_allreduce_async(ronde_engine* engine, const ronde_request* requests,
                                           int32_t count, ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kAllreduce, requests, count, Gets::kWork, work, error);
}

ronde_status ronde_grouped_allreduce(ronde_engine* engine, const ronde_request* requests,
                                     int32_t count, ronde_error** error) {
  return submit(engine, Operation::kAllreduce, requests, count, Gets::kNothing, nullptr, error);
}

ronde_status ronde_grouped_broadcast_async(ronde_engine* engine, const ronde_request* requests,
                                           int32_t count, ronde_work** work, ronde_error** error) {
  return submit(engine, Operation::kBroadcast, requests, count, Gets::kWork, work, error);
}

ronde_status ronde_prepare(ronde_engine* engine, ronde_operation_kind operation,
                           const ronde_request* request, ronde_prepared** prepared,
                           ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (prepared == nullptr) return null_argument("prepared");
    if (ronde_operation_info(static_cast<int32_t>(operation)) == nullptr) {
      return Status::error(ronde::base::Code::kInvalidArgument,
                           "operation " + std::to_string(static_cast<int>(operation)) +
                               " is unknown: use a ronde_operation_kind");
    }
    RONDE_ASSIGN_OR_RETURN(auto submission, translate(static_cast<Operation>(operation), request));
    RONDE_ASSIGN_OR_RETURN(auto made,
                           ronde::runtime::Prepared::make(engine->engine, std::move(submission)));
    *prepared = new ronde_prepared{std::move(made)};
    return {};
  });
}

ronde_status ronde_prepared_start(ronde_prepared* prepared, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    return prepared == nullptr ? null_argument("prepared") : prepared->prepared->start();
  });
}

ronde_status ronde_prepared_wait(ronde_prepared* prepared, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    return prepared == nullptr ? null_argument("prepared") : prepared->prepared->wait();
  });
}

ronde_status ronde_prepared_run(ronde_prepared* prepared, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    return prepared == nullptr ? null_argument("prepared") : prepared->prepared->run();
  });
}

ronde_status ronde_prepared_output(const ronde_prepared* prepared, const void** data, int64_t* rows,
                                   ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (prepared == nullptr) return null_argument("prepared");
    if (data == nullptr || rows == nullptr) return null_argument("data or rows");
    RONDE_ASSIGN_OR_RETURN(const auto gathered, prepared->prepared->gathered());
    *data = gathered.data;
    *rows = gathered.shape.front();
    return {};
  });
}

void ronde_prepared_release(ronde_prepared* prepared) { delete prepared; }

ronde_status ronde_grouped_broadcast(ronde_engine* engine, const ronde_request* requests,
                                     int32_t count, ronde_error** error) {
  return submit(engine, Operation::kBroadcast, requests, count, Gets::kNothing, nullptr, error);
}

}  // extern "C"
