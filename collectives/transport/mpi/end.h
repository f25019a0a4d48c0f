// SPDX-License-Identifier: Apache-2.0
// An end of the transport over MPI point-to-point messages.
//
// test() reports a message that is longer than its receive, but too late: Open MPI 4.1 writes a
// large one beyond the buffer. So ranks must agree on lengths before, as all collectives do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/transport/message_slots.h"
#include "collectives/transport/mpi/handle.h"

namespace ronde::collectives {

// Its functions promise what those of Transport do. It shares the ownership of the handle, and
// makes its MPI calls under mpi_lock().
//
// Thread safety: that of Transport.
class MpiEnd {
 public:
  using Request = std::uint64_t;

  explicit MpiEnd(std::shared_ptr<MpiHandle> handle)
      : handle_(std::move(handle)), unsettled_(base::narrow<std::size_t>(handle_->size)) {}

  [[nodiscard]] int outstanding() const { return outstanding_; }

  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data);
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data);
  base::Result<bool> test(Request request);

 private:
  using Kind = MessageSlot::Kind;
  struct Slot : MessageSlot {
    MPI_Request request = MPI_REQUEST_NULL;  // NOLINT(bugprone-casting-through-void)
    bool ended = false;                      // look() has seen the request end
  };

  // Up to this many bytes MPI gives a message to the system without announcing it to the receiver.
  static constexpr std::size_t kSmallMessage = 32768;
  // MPI looks at its connections at every eighth of its rounds, if not at each. Where messages
  // follow each other closely, settle() costs so many system calls a message.
  static constexpr std::uint64_t kRoundsToSettle = 8;

  template <typename Start>
  base::Result<Request> start(Kind kind, int peer, int tag, std::size_t bytes, Start&& call);
  [[nodiscard]] base::Status check_message(int peer, int tag) const;
  [[nodiscard]] std::string describe(const Slot& slot) const { return slot.text(handle_->rank); }
  // Has MPI look at all requests at once.
  base::Status look();
  // Ensures, before a message, that MPI has looked at its connections since the last message of
  // that rank.
  base::Status settle(int peer);
  void note_unsettled(const Slot& slot);
  void drop_ended();
  [[nodiscard]] base::Status outcome(const Slot& slot, int error, const MPI_Status& status) const
      RONDE_REQUIRES(mpi_lock());

  std::shared_ptr<MpiHandle> handle_;
  MessageSlots<Slot> slots_;
  int outstanding_ = 0;
  std::uint64_t looks_ = 1;
  std::uint64_t rounds_ = 1;  // looks that found nothing, in which MPI works on its connections
  // By rank: the round in which the last message began that did not end at once, or 0.
  std::vector<std::uint64_t> unsettled_;
  // The slots and the requests that every look tests, by position.
  std::vector<std::size_t> pending_slots_;
  std::vector<MPI_Request> pending_requests_;
  // The positions that ended in the last look, and their statuses.
  std::vector<int> ended_positions_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace ronde::collectives
