// SPDX-License-Identifier: Apache-2.0
// The timeline in the C ABI, and which ranks the others wait for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "runtime/timeline/trace.h"

namespace {

using ronde::base::Code;
using ronde::base::Status;
using ronde::bindings::guarded;
using ronde::bindings::null_argument;
using ronde::runtime::MarkKind;

static_assert(RONDE_MARK_INSTANT == static_cast<int>(MarkKind::kInstant));
static_assert(RONDE_MARK_BEGIN == static_cast<int>(MarkKind::kBegin));
static_assert(RONDE_MARK_END == static_cast<int>(MarkKind::kEnd));

}  // namespace

extern "C" {

ronde_status ronde_engine_start_timeline(ronde_engine* engine, const char* path, uint64_t flags,
                                         ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (path == nullptr) return null_argument("path");
    if ((flags & ~std::uint64_t{RONDE_TIMELINE_CYCLES}) != 0) {
      return Status::error(Code::kUnsupported, "unknown flags of a timeline: leave them 0");
    }
    return engine->engine->start_timeline(path, (flags & RONDE_TIMELINE_CYCLES) != 0);
  });
}

ronde_status ronde_engine_stop_timeline(ronde_engine* engine, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    return engine->engine->stop_timeline();
  });
}

ronde_status ronde_engine_mark(ronde_engine* engine, int32_t mark, const char* name,
                               ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (name == nullptr) return null_argument("name");
    if (mark < RONDE_MARK_INSTANT || mark > RONDE_MARK_END) {
      return Status::error(Code::kInvalidArgument,
                           "mark is " + std::to_string(mark) + ": give it a ronde_mark");
    }
    return engine->engine->mark(static_cast<MarkKind>(mark), name);
  });
}

ronde_status ronde_engine_late(const ronde_engine* engine, ronde_late* late, size_t capacity,
                               size_t* count, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (count == nullptr || (late == nullptr && capacity > 0)) {
      return null_argument(count == nullptr ? "count" : "late");
    }
    const auto rows = engine->engine->late();
    *count = rows.size();
    for (std::size_t i = 0; i < std::min(capacity, rows.size()); ++i) {
      const auto nanoseconds = [](auto time) { return static_cast<std::uint64_t>(time.count()); };
      late[i] = {rows[i].tensor,
                 rows[i].rank,
                 0,
                 rows[i].steps,
                 nanoseconds(rows[i].total),
                 nanoseconds(rows[i].worst),
                 rows[i].steps_as_victim};
    }
    return {};
  });
}

}  // extern "C"
