// SPDX-License-Identifier: Apache-2.0
// Join: the end of a rank's steps where the ranks have other numbers of them.
#include <ronde/ronde.h>

#include <memory>

#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "runtime/engine/engine.h"

using ronde::base::Status;
using ronde::bindings::guarded;
using ronde::bindings::null_argument;

extern "C" {

ronde_status ronde_join_async(ronde_engine* engine, ronde_work** work, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (work == nullptr) return null_argument("work");
    auto handle = std::make_unique<ronde_work>();
    RONDE_ASSIGN_OR_RETURN(handle->work, engine->engine->join(false));
    handle->engine = engine->engine;
    *work = handle.release();
    return {};
  });
}

ronde_status ronde_join(ronde_engine* engine, int32_t* last_rank, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    RONDE_ASSIGN_OR_RETURN(const auto work, engine->engine->join(true));
    RONDE_RETURN_IF_ERROR(engine->engine->wait(*work));
    if (last_rank != nullptr) *last_rank = work->last_joined;
    return {};
  });
}

ronde_status ronde_work_last_joined(const ronde_work* work, int32_t* last_rank,
                                    ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (last_rank == nullptr) return null_argument("last_rank");
    if (!work->work->joins || !work->work->completion.done() || !work->work->status.ok()) {
      return Status::error(ronde::base::Code::kInvalidArgument,
                           "only a join that has ended well has a last rank: wait for it first");
    }
    *last_rank = work->work->last_joined;
    return {};
  });
}

}  // extern "C"
