// SPDX-License-Identifier: Apache-2.0
// Memory of the C ABI for tensors, on the board and elsewhere.
#include <ronde/ronde.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/numbers.h"
#include "base/status.h"
#include "bindings/c/handles.h"
#include "bindings/c/request.h"
#include "runtime/engine/engine.h"

using ronde::runtime::Engine;

namespace {

using Allocate = decltype(&Engine::allocate);

ronde_status allocate_buffer(Allocate allocate, ronde_engine* engine, size_t bytes,
                             ronde_buffer** buffer, ronde_error** error) {
  return ronde::bindings::guarded(error, [&]() -> ronde::base::Status {
    RONDE_ASSIGN_OR_RETURN(Engine* const asked, ronde::bindings::engine_of(engine));
    if (buffer == nullptr) return ronde::bindings::null_argument("buffer");
    RONDE_ASSIGN_OR_RETURN(const auto size,
                           ronde::base::try_narrow<int64_t>(bytes, "the size of a buffer"));
    RONDE_ASSIGN_OR_RETURN(auto allocated, (asked->*allocate)(ronde::base::Bytes(size)));
    *buffer = new ronde_buffer{std::move(allocated)};
    return {};
  });
}

}  // namespace

ronde_status ronde_buffer_allocate(ronde_engine* engine, size_t bytes, ronde_buffer** buffer,
                                   ronde_error** error) {
  return allocate_buffer(&Engine::allocate, engine, bytes, buffer, error);
}

ronde_status ronde_buffer_allocate_anywhere(ronde_engine* engine, size_t bytes,
                                            ronde_buffer** buffer, ronde_error** error) {
  return allocate_buffer(&Engine::allocate_anywhere, engine, bytes, buffer, error);
}

int32_t ronde_buffer_is_on_board(const ronde_buffer* buffer) {
  return buffer != nullptr && buffer->buffer->on_board() ? 1 : 0;
}

void* ronde_buffer_memory(const ronde_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->buffer->bytes().data();
}

void ronde_buffer_release(ronde_buffer* buffer) { delete buffer; }
