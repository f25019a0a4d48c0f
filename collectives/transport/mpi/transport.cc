// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages over MPI: requests in reused slots, one MPI_Testsome for all of them, and
// the guard against messages to a rank that has died.
#include "collectives/transport/mpi/transport.h"

#include <utility>
#include <vector>

#include "base/numbers.h"
#include "collectives/transport/mpi/handle.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::collectives {

namespace {

using base::Code;
using base::MutexLock;
using base::Result;
using base::Status;

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<MpiHandle> handle)
      : handle_(std::move(handle)), unsettled_(base::narrow<std::size_t>(handle_->size)) {}

  [[nodiscard]] int rank() const override { return handle_->rank; }
  [[nodiscard]] int size() const override { return handle_->size; }
  [[nodiscard]] bool needs_polling() const override { return true; }
  [[nodiscard]] int outstanding() const override { return outstanding_; }
  [[nodiscard]] bool writes_after_destruction() const override { return outstanding() > 0; }

  Result<Request> send(int peer, int tag, std::span<const std::byte> data) override {
    return start(Kind::kSend, peer, tag, data.size(), [&](int count, MPI_Request* request) {
      const int error =
          MPI_Isend(data.data(), count, MPI_BYTE, peer, tag, handle_->communicator, request);
      if (error != MPI_SUCCESS || count > kSmallMessage) return error;
      // A small message has usually left by now. If MPI_Test sees that, look() need not.
      int ended = 0;
      return MPI_Test(request, &ended, MPI_STATUS_IGNORE);
    });
  }

  Result<Request> receive(int peer, int tag, std::span<std::byte> data) override {
    return start(Kind::kReceive, peer, tag, data.size(), [&](int count, MPI_Request* request) {
      return MPI_Irecv(data.data(), count, MPI_BYTE, peer, tag, handle_->communicator, request);
    });
  }

  Result<bool> test(Request request) override;

 private:
  enum class Kind : std::uint8_t { kSend, kReceive };

  // One request in flight. Slots are used again, so that a message allocates nothing; the
  // generation tells an old Request of the same slot from the present one.
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    Kind kind = Kind::kSend;
    bool used = false;
    int peer = 0;
    int tag = 0;
    int bytes = 0;
    std::uint32_t generation = 0;
    std::uint64_t tested_in = 0;  // the number of looks when test() was last called
    bool ended = false;           // look() has seen the request end
    Status result;                // valid once the request has ended
  };

  static constexpr unsigned kIndexBits = 32;
  // Up to this many bytes MPI gives a message to the system without announcing it to the receiver.
  static constexpr int kSmallMessage = 32768;
  // MPI looks at its connections at every eighth of its rounds, if not at each. Where messages
  // follow each other closely, settle() costs so many system calls a message.
  static constexpr std::uint64_t kRoundsToSettle = 8;

  template <typename Start>
  Result<Request> start(Kind kind, int peer, int tag, std::size_t bytes, Start&& call);
  [[nodiscard]] Status check_message(int peer, int tag) const;
  std::size_t take_slot();
  void free_slot(std::size_t index);
  [[nodiscard]] std::string describe(const Slot& slot) const;
  // Has MPI look at all requests at once.
  Status look();
  // Ensures, before a message, that MPI has looked at its connections since the last message of
  // that rank.
  Status settle(int peer);
  void note_unsettled(const Slot& slot);
  void drop_ended();
  [[nodiscard]] Status outcome(const Slot& slot, int error, const MPI_Status& status) const
      RONDE_REQUIRES(mpi_lock());

  std::shared_ptr<MpiHandle> handle_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
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

Status MpiTransport::check_message(int peer, int tag) const {
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

std::size_t MpiTransport::take_slot() {
  if (free_.empty()) {
    slots_.emplace_back();
    free_.reserve(slots_.size());
    return slots_.size() - 1;
  }
  const std::size_t index = free_.back();
  free_.pop_back();
  return index;
}

void MpiTransport::free_slot(std::size_t index) {
  slots_[index].used = false;
  slots_[index].ended = false;
  slots_[index].tested_in = 0;
  slots_[index].request = MPI_REQUEST_NULL;
  ++slots_[index].generation;
  free_.push_back(index);
}

template <typename Start>
Result<Transport::Request> MpiTransport::start(Kind kind, int peer, int tag, std::size_t bytes,
                                               Start&& call) {
  RONDE_RETURN_IF_ERROR(check_message(peer, tag));
  RONDE_ASSIGN_OR_RETURN(const auto count,
                         base::try_narrow<int>(bytes, "the length of an MPI message"));
  RONDE_RETURN_IF_ERROR(handle_->usable());
  RONDE_RETURN_IF_ERROR(settle(peer));
  const std::size_t index = take_slot();
  Slot& slot = slots_[index];
  slot.kind = kind;
  slot.peer = peer;
  slot.tag = tag;
  slot.bytes = count;
  {
    const MutexLock lock(mpi_lock());
    const int error = call(count, &slot.request);
    if (error != MPI_SUCCESS) {
      const Status status = mpi_error(error, describe(slot)).with_rank(peer);
      if (slot.request == MPI_REQUEST_NULL) {
        free_slot(index);
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
  return Request{slot.generation} << kIndexBits | index;
}

// Every look makes MPI poll its connections, which costs system calls. So test() has MPI look only
// when the same request is tested again: a caller that tests many requests in turn causes one look.
Result<bool> MpiTransport::test(Request request) {
  const auto index = static_cast<std::size_t>(request & 0xFFFFFFFFU);
  base::check(index < slots_.size() && slots_[index].used &&
                  slots_[index].generation == static_cast<std::uint32_t>(request >> kIndexBits),
              "test() of a request that is in flight");
  if (handle_->abandoned.load(std::memory_order_acquire)) return handle_->usable();
  Slot& slot = slots_[index];
  if (!slot.ended && slot.tested_in == looks_) RONDE_RETURN_IF_ERROR(look());
  slot.tested_in = looks_;
  if (!slot.ended) return false;
  const Status result = std::exchange(slot.result, Status());
  --outstanding_;
  free_slot(index);
  RONDE_RETURN_IF_ERROR(result);
  return true;
}

Status MpiTransport::look() {
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
Status MpiTransport::settle(int peer) {
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
void MpiTransport::note_unsettled(const Slot& slot) {
  if (slot.kind == Kind::kReceive && slot.bytes <= kSmallMessage) return;
  unsettled_[base::narrow<std::size_t>(slot.peer)] = rounds_;
}

void MpiTransport::drop_ended() {
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

Status MpiTransport::outcome(const Slot& slot, int error, const MPI_Status& status) const {
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
  if (count == slot.bytes) return {};
  return Status::error(Code::kTransport,
                       describe(slot) + ": the message had " + std::to_string(count) + " bytes")
      .with_rank(slot.peer);
}

std::string MpiTransport::describe(const Slot& slot) const {
  const std::string bytes = std::to_string(slot.bytes) + " bytes ";
  const std::string what = slot.kind == Kind::kSend ? "sending " + bytes + "to rank "
                                                    : "receiving " + bytes + "from rank ";
  return what + std::to_string(slot.peer) + " on rank " + std::to_string(handle_->rank) + " (tag " +
         std::to_string(slot.tag) + ")";
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiHandle> handle) {
  return std::make_unique<MpiTransport>(std::move(handle));
}

}  // namespace ronde::collectives
// NOLINTEND(bugprone-casting-through-void)
