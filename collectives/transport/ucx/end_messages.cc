// SPDX-License-Identifier: Apache-2.0
// The messages of an end, in reused slots, and their errors.
#include <string>
#include <utility>

#include "base/numbers.h"
#include "collectives/transport/ucx/end.h"

namespace ronde::collectives::ucx {

using base::Code;
using base::Result;
using base::Status;

namespace {

// UCX matches messages by a number of 64 bits: the sender's rank and Ronde's tag.
constexpr unsigned kTagBits = 32;
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};

ucp_tag_t tag_of(int sender, int tag) {
  return base::narrow<ucp_tag_t>(sender) << kTagBits | base::narrow<ucp_tag_t>(tag);
}

// Tensors that Ronde sends and receives lie in host memory, so UCX need not ask each device.
ucp_request_param_t host_memory() {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  return parameters;
}

}  // namespace

// ---- messages ----

Status End::check_message(int peer, int tag) const {
  if (peer < 0 || peer >= host_.size) {
    return Status::error(Code::kInvalidArgument, "no rank " + std::to_string(peer) +
                                                     " in a job of " + std::to_string(host_.size));
  }
  if (tag < 0) return Status::error(Code::kInvalidArgument, "tag " + std::to_string(tag));
  return {};
}

Result<std::size_t> End::begin(Kind kind, int peer, int tag, std::size_t bytes) {
  RONDE_RETURN_IF_ERROR(check_message(peer, tag));
  const std::size_t index = slots_.take(kind, peer, tag, bytes);
  Slot& slot = slots_[index];
  const auto endpoint = endpoint_to(peer);
  // What a rank had sent before it was lost can still be received.
  const bool was_there = peers_[base::narrow<std::size_t>(peer)].endpoint != nullptr;
  if (!endpoint.ok() && !(kind == Kind::kReceive && was_there)) {
    const Status why =
        Status::error(endpoint.status().code(), describe(slot) + ": " + endpoint.status().message())
            .with_rank(peer);
    slots_.free(index);
    return why;
  }
  slot.used = true;
  ++outstanding_;
  owed_ = true;
  return index;
}

End::Request End::keep(std::size_t index, ucs_status_ptr_t request) {
  Slot& slot = slots_[index];
  if (UCS_PTR_IS_PTR(request)) {
    slot.request = request;
  } else {
    slot.result = outcome(slot, UCS_PTR_STATUS(request), slot.bytes);
  }
  return slots_.request_of(index);
}

Result<End::Request> End::send(int peer, int tag, std::span<const std::byte> data) {
  RONDE_ASSIGN_OR_RETURN(const auto index, begin(Kind::kSend, peer, tag, data.size()));
  const ucp_request_param_t parameters = host_memory();
  const Peer& other = peers_[base::narrow<std::size_t>(peer)];
  return keep(index, ucx_.tag_send_nbx(other.endpoint, data.data(), data.size(),
                                       tag_of(host_.rank, tag), &parameters));
}

Result<End::Request> End::receive(int peer, int tag, std::span<std::byte> data) {
  RONDE_ASSIGN_OR_RETURN(const auto index, begin(Kind::kReceive, peer, tag, data.size()));
  ucp_request_param_t parameters = host_memory();
  // UCX 1.13 does not tell the length of a message that is there already, unless it is asked later.
  parameters.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  return keep(index, ucx_.tag_recv_nbx(worker_, data.data(), data.size(), tag_of(peer, tag),
                                       kWholeTag, &parameters));
}

// Progress costs a system call or more. So test() makes some only when the same request is tested
// again: a caller that tests many requests in turn causes it once.
Result<bool> End::test(Request request) {
  const std::size_t index = slots_.index_of(request);
  Slot& slot = slots_[index];
  if (slot.request != nullptr) look(slot);
  if (slot.request != nullptr && slot.tested_in == looks_) {
    progress();
    look(slot);
  }
  slot.tested_in = looks_;
  if (slot.request != nullptr) return false;
  const Status result = std::exchange(slot.result, Status());
  --outstanding_;
  slots_.free(index);
  RONDE_RETURN_IF_ERROR(result);
  return true;
}

// Sees whether the request of a slot has ended.
void End::look(Slot& slot) {
  ucp_tag_recv_info_t info{};
  info.length = slot.bytes;
  const ucs_status_t status = slot.kind == Kind::kSend
                                  ? ucx_.request_check_status(slot.request)
                                  : ucx_.tag_recv_request_test(slot.request, &info);
  if (status != UCS_INPROGRESS) {
    slot.result = outcome(slot, status, info.length);
    ucx_.request_free(std::exchange(slot.request, nullptr));
    return;
  }
  const Peer& peer = peers_[base::narrow<std::size_t>(slot.peer)];
  if (peer.failure == UCS_OK) return;
  // What had arrived before the connection was lost has been delivered, and no more will come.
  slot.result = failure(describe(slot) + ": ", slot.peer, peer.failure);
  cancel(slot);
}

void End::cancel(Slot& slot) {
  if (slot.request == nullptr) return;
  ucx_.request_cancel(worker_, slot.request);
  ucx_.request_free(std::exchange(slot.request, nullptr));
}

bool End::progress() {
  ++looks_;
  owed_ = false;
  // A good-bye that a rank says to itself may have been heard outside UCX's progress.
  if (ucx_.worker_progress(worker_) == 0 && answers_owed_.empty()) return false;
  for (const int rank : std::exchange(answers_owed_, {})) answer(rank);
  return moved_ = true;
}

// What a call outside progress() leaves for it (UCX takes over a connection that the other end has
// opened, with bytes that are read already; a connection fails in a send) is a callback of the
// worker, and no descriptor tells of it: a thread that slept then would wait for the next message.
Result<bool> End::arm() {
  if (owed_) progress();
  if (std::exchange(moved_, false)) return false;
  const ucs_status_t status = ucx_.worker_arm(worker_);
  if (status == UCS_OK) return true;
  if (status == UCS_ERR_BUSY) return false;
  return Status::error(Code::kTransport, "UCX cannot wait for messages: " + ucx_.text_of(status));
}

// ---- errors ----

Status End::outcome(const Slot& slot, ucs_status_t status, std::size_t length) const {
  if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    return Status::error(Code::kTransport, describe(slot) + ": the message was longer than that")
        .with_rank(slot.peer);
  }
  if (status != UCS_OK) return failure(describe(slot) + ": ", slot.peer, status);
  if (slot.kind == Kind::kSend || length == slot.bytes) return {};
  return Status::error(Code::kTransport,
                       describe(slot) + ": the message had " + std::to_string(length) + " bytes")
      .with_rank(slot.peer);
}

Status End::failure(const std::string& activity, int peer, ucs_status_t status) const {
  // A message that UCX cancels was on a connection that had failed for another reason.
  const ucs_status_t known = peers_[base::narrow<std::size_t>(peer)].failure;
  const ucs_status_t why = known == UCS_OK ? status : known;
  return Status::error(Code::kPeerFailed, activity + "the connection to rank " +
                                              std::to_string(peer) +
                                              " is lost: " + ucx_.text_of(why))
      .with_rank(peer);
}

}  // namespace ronde::collectives::ucx
