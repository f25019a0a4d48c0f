// SPDX-License-Identifier: Apache-2.0
// Open lines of the C ABI.
#include <ronde/ronde.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/dtype.h"
#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "collectives/in_host/lines.h"
#include "runtime/engine/open_line.h"

using ronde::base::Status;
using ronde::bindings::guarded;
using ronde::bindings::null_argument;
using ronde::runtime::OpenLine;

static_assert(RONDE_LINE_BYTES == ronde::collectives::Lines::kMostBytes);

namespace {

ronde::base::Result<OpenLine::Call> line_call_of(const ronde_line_call& given) {
  const auto wrong = [](const std::string& what, int32_t value) {
    return Status::error(ronde::base::Code::kInvalidArgument,
                         "ronde_line_call: " + what + " " + std::to_string(value) + " is unknown");
  };
  if (ronde_operation_info(given.operation) == nullptr) return wrong("operation", given.operation);
  const auto dtype = ronde::base::dtype_from_value(given.dtype);
  if (!dtype) return wrong("dtype", given.dtype);
  const auto op = ronde::base::reduce_op_from_value(given.op);
  if (!op) return wrong("op", given.op);
  OpenLine::Call call;
  call.form = given.form;
  call.operation = static_cast<ronde::base::Operation>(given.operation);
  call.dtype = *dtype;
  call.op = *op;
  call.root = given.root;
  call.elements = given.elements;
  call.input = static_cast<const std::byte*>(given.input);
  call.output = static_cast<std::byte*>(given.output);
  return call;
}

}  // namespace

extern "C" {

ronde_status ronde_line_open(ronde_engine* engine, const char* name, ronde_line** line,
                             ronde_error** error) {
  return guarded(error, [&]() -> Status {
    RONDE_RETURN_IF_ERROR(ronde::bindings::engine_of(engine).status());
    if (name == nullptr) return null_argument("name");
    if (line == nullptr) return null_argument("line");
    RONDE_ASSIGN_OR_RETURN(auto made, OpenLine::make(engine->engine, name));
    *line = made == nullptr ? nullptr : new ronde_line{std::move(made)};
    return {};
  });
}

ronde_status ronde_line_start(ronde_line* line, const ronde_line_call* call, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (line == nullptr) return null_argument("line");
    RONDE_ASSIGN_OR_RETURN(const auto given, ronde::bindings::read_struct(call, "ronde_line_call"));
    RONDE_ASSIGN_OR_RETURN(const auto made, line_call_of(given));
    return line->line->start(made);
  });
}

ronde_status ronde_line_wait_for(ronde_line* line, int64_t timeout_ns, int32_t* met,
                                 ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (line == nullptr) return null_argument("line");
    if (met == nullptr) return null_argument("met");
    const std::chrono::nanoseconds patience(std::max<int64_t>(0, timeout_ns));
    RONDE_ASSIGN_OR_RETURN(const auto what, line->line->wait(patience));
    *met = static_cast<int32_t>(what);
    return {};
  });
}

void ronde_line_release(ronde_line* line) { delete line; }

}  // extern "C"
