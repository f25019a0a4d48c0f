// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages over MPI: requests in reused slots, one MPI_Testsome for all of them, and
// the guard against messages to a rank that has died.
#include "collectives/transport/mpi/end.h"

#include <utility>

#include "base/numbers.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::collectives {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

Status MpiEnd::check_message(int peer, int tag) const {
  if (peer < 0 || peer >= handle_->size) {
    return Status::error(
        Code::kInvalidArgument,
        "no rank " + std::to_string(peer) + " in a job of " + std::to_string(handle_->size));
  }
  if (tag < 0 || tag > handle_->largest_tag) {
    return Status::error(Code::kInvalidArgument, "tag " + std::to_string(tag) +
                                                     " is beyond what this MPI allows (" +
                                                     std::to_string(handle_->largest_tag) + ")");
  }
  return {};
}

template <typename Start>
Result<MpiEnd::Request> MpiEnd::start(Kind kind, int peer, int tag, std::size_t bytes,
                                      Start&& call) {
  RONDE_RETURN_IF_ERROR(check_message(peer, tag));
  RONDE_ASSIGN_OR_RETURN(const auto count,
                         base::try_narrow<int>(bytes, "the length of an MPI message"));
  RONDE_RETURN_IF_ERROR(handle_->usable());
  RONDE_RETURN_IF_ERROR(settle(peer));
  const std::size_t index = slots_.take(kind, peer, tag, bytes);
  Slot& slot = slots_[index];
  slot.request = MPI_REQUEST_NULL;
  {
    const MutexLock lock(mpi_lock());
    const int error = call(count, &slot.request);
    if (error != MPI_SUCCESS) {
      const Status status = mpi_error(error, describe(slot)).with_rank(peer);
      if (slot.request == MPI_REQUEST_NULL) {
        slots_.free(index);
      } else {
        ++outstanding_;  // test() is never called for it, and MPI may still read the memory
      }
      return status;
    }
  }
  slot.used = true;
  slot.ended = slot.request == MPI_REQUEST_NULL;
  if (!slot.ended) {
    pending_slots_.push_back(index);
    pending_requests_.push_back(slot.request);
    note_unsettled(slot);
  }
  ++outstanding_;
  return slots_.request_of(index);
}

Result<MpiEnd::Request> MpiEnd::send(int peer, int tag, std::span<const std::byte> data) {
  return start(Kind::kSend, peer, tag, data.size(), [&](int count, MPI_Request* request) {
    const int error =
        MPI_Isend(data.data(), count, MPI_BYTE, peer, tag, handle_->communicator, request);
    if (error != MPI_SUCCESS || data.size() > kSmallMessage) return error;
    // A small message has usually left by now. If MPI_Test sees that, look() need not.
    int ended = 0;
    return MPI_Test(request, &ended, MPI_STATUS_IGNORE);
  });
}

Result<MpiEnd::Request> MpiEnd::receive(int peer, int tag, std::span<std::byte> data) {
  return start(Kind::kReceive, peer, tag, data.size(), [&](int count, MPI_Request* request) {
    return MPI_Irecv(data.data(), count, MPI_BYTE, peer, tag, handle_->communicator, request);
  });
}

// Every look makes MPI poll its connections, which costs system calls. So test() has MPI look only
// when the same request is tested again: a caller that tests many requests in turn causes one look.
Result<bool> MpiEnd::test(Request request) {
  const std::size_t index = slots_.index_of(request);
  if (handle_->abandoned.load(std::memory_order_acquire)) return handle_->usable();
  Slot& slot = slots_[index];
  if (!slot.ended && slot.tested_in == looks_) RONDE_RETURN_IF_ERROR(look());
  slot.tested_in = looks_;
  if (!slot.ended) return false;
  const Status result = std::exchange(slot.result, Status());
  --outstanding_;
  slots_.free(index);
  RONDE_RETURN_IF_ERROR(result);
  return true;
}

Status MpiEnd::look() {
  ++looks_;
  ended_positions_.resize(pending_requests_.size());
  statuses_.resize(pending_requests_.size());
  const MutexLock lock(mpi_lock());
  int count = 0;
  const int error =
      MPI_Testsome(base::narrow<int>(pending_requests_.size()), pending_requests_.data(), &count,
                   ended_positions_.data(), statuses_.data());
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) {
    return mpi_error(error, "testing messages");
  }
  for (int i = 0; i < count; ++i) {
    const auto position = static_cast<std::size_t>(ended_positions_[static_cast<std::size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    Slot& slot = slots_[pending_slots_[position]];
    slot.request = MPI_REQUEST_NULL;
    pending_requests_[position] = MPI_REQUEST_NULL;  // as MPI does
    slot.ended = true;
    slot.result = outcome(slot, error == MPI_SUCCESS ? MPI_SUCCESS : status.MPI_ERROR, status);
  }
  if (count > 0) {
    drop_ended();
  } else {
    ++rounds_;
  }
  return {};
}

// When the other end of a connection of OpenMPI 4's btl/tcp dies while MPI writes to it, MPI closes
// the descriptor but leaves its event behind. The next message to that rank would open a
// connection, get the same descriptor, and make the list of its events a ring, which MPI then
// follows for ever. A look of MPI at its connections removes the event. (This does not cover
// another engine of the process that writes to the same rank at that moment.)
Status MpiEnd::settle(int peer) {
  std::uint64_t& since = unsettled_[base::narrow<std::size_t>(peer)];
  if (since == 0) return {};
  while (!pending_requests_.empty() && rounds_ - since < kRoundsToSettle) {
    RONDE_RETURN_IF_ERROR(look());
  }
  // Without pending requests every write has ended too.
  since = 0;
  return {};
}

// Receives count as well where the message is announced first, since MPI then answers it.
void MpiEnd::note_unsettled(const Slot& slot) {
  if (slot.kind == Kind::kReceive && slot.bytes <= kSmallMessage) return;
  unsettled_[base::narrow<std::size_t>(slot.peer)] = rounds_;
}

void MpiEnd::drop_ended() {
  std::size_t kept = 0;
  for (std::size_t position = 0; position < pending_requests_.size(); ++position) {
    if (pending_requests_[position] == MPI_REQUEST_NULL) continue;
    pending_requests_[kept] = pending_requests_[position];
    pending_slots_[kept] = pending_slots_[position];
    ++kept;
  }
  pending_requests_.resize(kept);
  pending_slots_.resize(kept);
}

Status MpiEnd::outcome(const Slot& slot, int error, const MPI_Status& status) const {
  int error_class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) {
    return Status::error(Code::kTransport, describe(slot) + ": the message was longer than that")
        .with_rank(slot.peer);
  }
  if (error != MPI_SUCCESS) return mpi_error(error, describe(slot)).with_rank(slot.peer);
  if (slot.kind == Kind::kSend) return {};
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  if (std::cmp_equal(count, slot.bytes)) return {};
  return Status::error(Code::kTransport,
                       describe(slot) + ": the message had " + std::to_string(count) + " bytes")
      .with_rank(slot.peer);
}

}  // namespace ronde::collectives
// NOLINTEND(bugprone-casting-through-void)
