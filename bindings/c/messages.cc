// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks in the C ABI.
#include <ronde/ronde.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "runtime/engine/engine.h"
#include "runtime/messages/message.h"

namespace ronde::bindings {

template <>
ronde_message defaults_of<ronde_message>() {
  ronde_message message{};
  message.struct_size = sizeof(ronde_message);
  message.device = RONDE_DEVICE_CPU;
  return message;
}

}  // namespace ronde::bindings

using ronde::base::Code;
using ronde::base::Result;
using ronde::base::Status;
using ronde::bindings::deadline_of;
using ronde::bindings::guarded;
using ronde::bindings::null_argument;
using ronde::bindings::read_struct;
using ronde::runtime::Engine;
using ronde::runtime::MessageRequest;

static_assert(RONDE_ANY_RANK == MessageRequest::kAnyRank);
// There is no padding at the end: a younger field would hide in it, in a struct of the same size.
static_assert(sizeof(ronde_message) == offsetof(ronde_message, deadline_ns) + sizeof(int64_t));

namespace {

Result<MessageRequest> translate_message(const ronde_message* given, bool waits) {
  RONDE_ASSIGN_OR_RETURN(const ronde_message message, read_struct(given, "ronde_message"));
  const auto dtype = ronde::base::dtype_from_value(message.dtype);
  if (!dtype) {
    return Status::error(
        Code::kInvalidArgument,
        "ronde_message: dtype " + std::to_string(message.dtype) + " is unknown: use a ronde_dtype");
  }
  if ((message.flags & ~uint64_t{RONDE_FLAG_WILL_WAIT}) != 0) {
    return Status::error(Code::kInvalidArgument,
                         "ronde_message: flags has unknown bits: use RONDE_FLAG_WILL_WAIT or 0");
  }
  MessageRequest request;
  request.rank = message.rank;
  request.tag = message.tag;
  request.dtype = *dtype;
  request.count = message.count;
  request.memory = static_cast<std::byte*>(message.data);
  request.device = message.device;
  request.will_wait = waits || (message.flags & RONDE_FLAG_WILL_WAIT) != 0;
  request.file = message.file;
  request.line = message.line;
  RONDE_ASSIGN_OR_RETURN(request.deadline, deadline_of("ronde_message", message.deadline_ns));
  return request;
}

using Begin = Result<Engine::WorkPtr> (Engine::*)(const MessageRequest&);

ronde_status begin(ronde_engine* engine, const ronde_message* message, Begin call,
                   ronde_work** work, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    if (work == nullptr) return null_argument("work");
    RONDE_ASSIGN_OR_RETURN(const MessageRequest request, translate_message(message, false));
    auto handle = std::make_unique<ronde_work>();
    RONDE_ASSIGN_OR_RETURN(handle->work, (engine->engine.get()->*call)(request));
    handle->engine = engine->engine;
    *work = handle.release();
    return {};
  });
}

ronde_status begin_and_wait(ronde_engine* engine, const ronde_message* message, Begin call,
                            int32_t* source, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr) return null_argument("engine");
    RONDE_ASSIGN_OR_RETURN(const MessageRequest request, translate_message(message, true));
    Engine& of = *engine->engine;
    RONDE_ASSIGN_OR_RETURN(const auto work, (of.*call)(request));
    RONDE_RETURN_IF_ERROR(of.wait(*work));
    if (source != nullptr) *source = work->message_source;
    return {};
  });
}

}  // namespace

extern "C" {

void ronde_message_init_sized(ronde_message* message, size_t struct_size) {
  ronde::bindings::init_sized(message, struct_size);
}

ronde_status ronde_send_async(ronde_engine* engine, const ronde_message* message, ronde_work** work,
                              ronde_error** error) {
  return begin(engine, message, &Engine::send, work, error);
}

ronde_status ronde_recv_async(ronde_engine* engine, const ronde_message* message, ronde_work** work,
                              ronde_error** error) {
  return begin(engine, message, &Engine::receive, work, error);
}

ronde_status ronde_send(ronde_engine* engine, const ronde_message* message, ronde_error** error) {
  return begin_and_wait(engine, message, &Engine::send, nullptr, error);
}

ronde_status ronde_recv(ronde_engine* engine, const ronde_message* message, int32_t* source,
                        ronde_error** error) {
  return begin_and_wait(engine, message, &Engine::receive, source, error);
}

ronde_status ronde_work_source(const ronde_work* work, int32_t* source, ronde_error** error) {
  return guarded(error, [&]() -> Status {
    if (work == nullptr) return null_argument("work");
    if (source == nullptr) return null_argument("source");
    if (!work->work->completion.done()) {
      return Status::error(Code::kInvalidArgument, "the work is not done: wait for it first");
    }
    RONDE_RETURN_IF_ERROR(Engine::result(*work->work));
    if (work->work->message_source < 0) {
      return Status::error(Code::kInvalidArgument, "only the work of a receive has a source");
    }
    *source = work->work->message_source;
    return {};
  });
}

}  // extern "C"
