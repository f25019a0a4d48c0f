// SPDX-License-Identifier: Apache-2.0
// What carries bytes between ranks. The algorithms are written against this interface alone, so the
// same ring runs over MPI in a job and over memory, with faults injected, in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace ronde::collectives {

// Messages between two ranks with one tag arrive in the order they were sent, and receives take
// them in the order they were posted. An empty message is a message. Memory handed to send() or
// receive() must stay, and a send's must not be written, until test() said true; after an error the
// fate of the outstanding requests is unknown, so the memory must outlive the transport.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class Transport {
 public:
  using Request = std::uint64_t;

  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  virtual base::Result<Request> send(int peer, int tag, std::span<const std::byte> data) = 0;
  virtual base::Result<Request> receive(int peer, int tag, std::span<std::byte> data) = 0;

  // True once: the request is then gone. A message of another length than the receive expects is an
  // error; after an error the request is gone as well.
  virtual base::Result<bool> test(Request request) = 0;

  // Whether progress needs repeated test() calls (MPI), or an arrival rings somebody (memory).
  [[nodiscard]] virtual bool needs_polling() const = 0;

  // Requests that test() has not reported yet.
  [[nodiscard]] virtual int outstanding() const = 0;

  // Whether somebody may still write into memory of outstanding requests when this object is gone:
  // then that memory must stay until the process ends. MPI does, after a failure.
  [[nodiscard]] virtual bool writes_after_its_end() const { return false; }
};

}  // namespace ronde::collectives
