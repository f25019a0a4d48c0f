// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks, as calls of an Engine. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <chrono>
#include <cstdint>
#include <ronde/range.hpp>
#include <ronde/requests.hpp>
#include <ronde/types.hpp>
#include <ronde/work.hpp>
#include <source_location>

namespace ronde::detail {

// Fills in a message of the C ABI. The memory stays the caller's.
inline ronde_message message_of(int rank, std::int64_t tag, const Memory& memory,
                                std::chrono::nanoseconds deadline,
                                const std::source_location& where) {
  ronde_message message;
  ronde_message_init(&message);
  message.rank = rank;
  message.tag = tag;
  message.data = memory.data;
  message.count = static_cast<std::int64_t>(memory.count);
  message.dtype = memory.dtype;
  message.device = memory.device;
  message.deadline_ns = deadline.count();
  message.file = where.file_name();
  message.line = static_cast<std::int32_t>(where.line());
  return message;
}

// What ronde::Engine has for them: a message goes by rank and tag, has any size, and travels beside
// the operations of all ranks ("messages" in ronde.h). Both ranks name the same type and number of
// elements.
//   engine.send(1, 0, std::span(activations)).wait();           on rank 0
//   engine.recv(0, 0, std::span(activations)).wait();           on rank 1
// deadline: so long after the call the message has gone, or come, or the job fails; 0:
// RONDE_STALL_FAILURE_SECONDS.
//
// Thread safety: every function may be called from any thread.
template <typename Engine>
class MessageCalls {
 public:
  // Sends `data` to that rank. Throws Error: the codes of ronde_send_async.
  template <TensorSpan R>
  Work send(int rank, std::int64_t tag, R&& data, std::chrono::nanoseconds deadline = {},
            std::source_location where = std::source_location::current()) {
    const ronde_message message = message_of(rank, tag, Memory(span_of(data)), deadline, where);
    return start(ronde_send_async, handle(), &message);
  }
  template <TensorRange R>
  void send_blocking(int rank, std::int64_t tag, R&& data, std::chrono::nanoseconds deadline = {},
                     std::source_location where = std::source_location::current()) {
    const ronde_message message = message_of(rank, tag, Memory(span_of(data)), deadline, where);
    ErrorSlot error;
    error.throw_if(ronde_send(handle(), &message, &error));
  }

  // Receives from that rank. Throws Error: the codes of ronde_recv_async.
  template <OutputSpan R>
  Work recv(int rank, std::int64_t tag, R&& data, std::chrono::nanoseconds deadline = {},
            std::source_location where = std::source_location::current()) {
    const ronde_message message = message_of(rank, tag, Memory(span_of(data)), deadline, where);
    return start(ronde_recv_async, handle(), &message);
  }
  template <OutputRange R>
  void recv_blocking(int rank, std::int64_t tag, R&& data, std::chrono::nanoseconds deadline = {},
                     std::source_location where = std::source_location::current()) {
    receive(message_of(rank, tag, Memory(span_of(data)), deadline, where));
  }

  // From whoever sends first with this tag: Work::source() says who that was, which the blocking
  // form returns.
  template <OutputSpan R>
  Work recv_any(std::int64_t tag, R&& data, std::chrono::nanoseconds deadline = {},
                std::source_location where = std::source_location::current()) {
    return recv(RONDE_ANY_RANK, tag, data, deadline, where);
  }
  template <OutputRange R>
  int recv_any_blocking(std::int64_t tag, R&& data, std::chrono::nanoseconds deadline = {},
                        std::source_location where = std::source_location::current()) {
    return receive(message_of(RONDE_ANY_RANK, tag, Memory(span_of(data)), deadline, where));
  }

 private:
  friend Engine;
  MessageCalls() = default;

  ronde_engine* handle() { return static_cast<Engine&>(*this).get(); }
  int receive(const ronde_message& message) {
    std::int32_t source = 0;
    ErrorSlot error;
    error.throw_if(ronde_recv(handle(), &message, &source, &error));
    return source;
  }
};

}  // namespace ronde::detail
