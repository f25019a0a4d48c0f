// SPDX-License-Identifier: Apache-2.0
// The interface of what carries bytes between ranks. The algorithms are written against it alone,
// so the same ring runs over MPI in a job and over memory, with faults injected, in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace ronde::collectives {

// Messages between two ranks with one tag arrive in the order they were sent, and receives take
// them in the order they were posted. An empty message is a message. Memory passed to send() or
// receive() remains the caller's; it must stay, and a send's must not be written, until test()
// returned true. After an error the state of the outstanding requests is unknown, so the memory
// must outlive the transport.
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

  // Returns true once, when the request has finished; the request is gone then, and after an error
  // as well. It is an error if a message has another length than its receive.
  virtual base::Result<bool> test(Request request) = 0;

  // Tells whether progress needs repeated test() calls (MPI), or an arrival rings a doorbell
  // (memory), or makes a descriptor readable.
  [[nodiscard]] virtual bool needs_polling() const = 0;

  // A descriptor on which a thread that waits for messages can sleep; -1 where there is none. It
  // belongs to the transport.
  [[nodiscard]] virtual int descriptor() const { return -1; }
  // To be called by a thread that is about to sleep: from now on the next event makes the
  // descriptor readable. False: something has been handled since the last call of arm(), or is
  // there now. The thread must not sleep then, but call progress() and test its requests again.
  virtual base::Result<bool> arm() { return true; }
  // Handles what has arrived, also while nothing is outstanding (another rank connects).
  virtual base::Status progress() { return {}; }

  // The number of requests that test() has not reported yet.
  [[nodiscard]] virtual int outstanding() const = 0;

  // Gives up after a failure: peers may be dead, so that destroying this object waits for nobody.
  // It is not used otherwise any more.
  virtual void abandon() {}

  // Tells whether memory of outstanding requests may be written after this object was destroyed:
  // then that memory must stay until the process ends. MPI does so after a failure.
  [[nodiscard]] virtual bool writes_after_destruction() const { return false; }
};

}  // namespace ronde::collectives
