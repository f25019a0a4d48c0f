// SPDX-License-Identifier: Apache-2.0
// Point-to-point messages over MPI: see mpi_transport.h.
#include "collectives/mpi_transport.h"

#include <utility>
#include <vector>

#include "base/numbers.h"
#include "collectives/mpi_handle.h"

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
  explicit MpiTransport(std::shared_ptr<MpiHandle> handle) : handle_(std::move(handle)) {}

  [[nodiscard]] int rank() const override { return handle_->rank; }
  [[nodiscard]] int size() const override { return handle_->size; }
  [[nodiscard]] bool needs_polling() const override { return true; }
  [[nodiscard]] int outstanding() const override { return outstanding_; }
  [[nodiscard]] bool writes_after_its_end() const override { return outstanding() > 0; }

  Result<Request> send(int peer, int tag, std::span<const std::byte> data) override {
    return start(Kind::kSend, peer, tag, data.size(), [&](int count, MPI_Request* request) {
      return MPI_Isend(data.data(), count, MPI_BYTE, peer, tag, handle_->communicator, request);
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

  // One request in flight. Slots are used again, so that a message allocates nothing; the round
  // tells an old Request of the same slot from the present one.
  struct Slot {
    MPI_Request request = MPI_REQUEST_NULL;
    Kind kind = Kind::kSend;
    bool used = false;
    int peer = 0;
    int tag = 0;
    int bytes = 0;
    std::uint32_t round = 0;
  };

  static constexpr unsigned kIndexBits = 32;

  template <typename Start>
  Result<Request> start(Kind kind, int peer, int tag, std::size_t bytes, Start&& call);
  [[nodiscard]] Status check_message(int peer, int tag) const;
  std::size_t take_slot();
  void free_slot(std::size_t index);
  [[nodiscard]] std::string describe(const Slot& slot) const;
  [[nodiscard]] Status outcome(const Slot& slot, int error, const MPI_Status& status) const
      RONDE_REQUIRES(mpi_lock());

  std::shared_ptr<MpiHandle> handle_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_;
  int outstanding_ = 0;
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
  slots_[index].request = MPI_REQUEST_NULL;
  ++slots_[index].round;
  free_.push_back(index);
}

template <typename Start>
Result<Transport::Request> MpiTransport::start(Kind kind, int peer, int tag, std::size_t bytes,
                                               Start&& call) {
  RONDE_RETURN_IF_ERROR(check_message(peer, tag));
  const auto count = base::try_narrow<int>(bytes, "the length of an MPI message");
  if (!count.ok()) return count.status();
  RONDE_RETURN_IF_ERROR(handle_->usable());
  const std::size_t index = take_slot();
  Slot& slot = slots_[index];
  slot.kind = kind;
  slot.peer = peer;
  slot.tag = tag;
  slot.bytes = *count;
  {
    const MutexLock lock(mpi_lock());
    const int error = call(*count, &slot.request);
    if (error != MPI_SUCCESS) {
      const Status status = mpi_error(error, describe(slot)).with_rank(peer);
      free_slot(index);
      return status;
    }
  }
  slot.used = true;
  ++outstanding_;
  return Request{slot.round} << kIndexBits | index;
}

Result<bool> MpiTransport::test(Request request) {
  const auto index = static_cast<std::size_t>(request & 0xFFFFFFFFU);
  base::check(index < slots_.size() && slots_[index].used &&
                  slots_[index].round == static_cast<std::uint32_t>(request >> kIndexBits),
              "test() of a request that is in flight");
  if (handle_->abandoned.load(std::memory_order_acquire)) return handle_->usable();
  Slot& slot = slots_[index];
  Status result;
  {
    const MutexLock lock(mpi_lock());
    int done = 0;
    MPI_Status status;
    const int error = MPI_Test(&slot.request, &done, &status);
    if (error == MPI_SUCCESS && done == 0) return false;
    result = outcome(slot, error, status);
  }
  --outstanding_;
  free_slot(index);
  RONDE_RETURN_IF_ERROR(result);
  return true;
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
