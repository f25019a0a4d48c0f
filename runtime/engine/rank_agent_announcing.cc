// SPDX-License-Identifier: Apache-2.0
// How a rank announces tensors to its leader: by counting itself in on the board, or by a message
// through it. Unlike the rest of the agent, these functions run on the submitting threads.
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "runtime/engine/rank_agent.h"

namespace ronde::runtime {

using base::MutexLock;
using base::Status;

std::vector<std::byte> RankAgent::make_request(const LocalTensor& tensor) {
  std::vector<std::byte> bytes =
      encode(RequestAnnouncement{tensor.name, tensor.place, tensor.signature, tensor.step});
  const MutexLock lock(announce_mutex_);
  announcements_.reserve(bytes.size());
  return bytes;
}

// Keeps the highest number.
void RankAgent::note_step(StepNumber step) {
  if (!step.exists()) return;
  std::uint64_t before = last_step_.load(std::memory_order_relaxed);
  while (before < step.word() &&
         !last_step_.compare_exchange_weak(before, step.word(), std::memory_order_relaxed)) {
  }
}

Status RankAgent::announce(const LocalTensor& tensor, const Ticket& ticket,
                           std::vector<std::byte> request, bool wake) {
  note_step(tensor.step);
  // One that is stale must not overwrite the step of this rank's later tensor at the entry.
  if (ticket.entry >= 0 && board_.arrival(ticket.entry).generation == ticket.generation) {
    // The mark comes before the count: once the last rank has counted itself in, the batch may
    // finish at any moment.
    board_.mark_arrived(ticket.entry, received_batches_.load(std::memory_order_relaxed),
                        tensor.step.word());
    const auto arrival =
        board_.arrive(ticket.entry, ticket.generation, static_cast<std::uint32_t>(board_.ranks()),
                      tensor.step.must_agree());
    if (arrival != collectives::Arrival::kStale) {
      planned_requests_.fetch_add(1, std::memory_order_relaxed);
      control_bytes_.fetch_add(sizeof(std::uint64_t), std::memory_order_relaxed);
      if (arrival == collectives::Arrival::kLast) {
        board_.push_ready(ticket.entry);
        ring_leader(wake);
      }
      return {};
    }
    board_.unmark_arrived(ticket.entry);
  }
  full_requests_.fetch_add(1, std::memory_order_relaxed);
  try {
    // The plan has changed since the ticket was given.
    if (request.empty()) request = make_request(tensor);
    return send(request, wake);
  } catch (const std::bad_alloc&) {
    fail_for_memory();  // the tensor is in the table already, and the agent may have seen it there
    return {};
  }
}

Status RankAgent::announce(const Announcement& announcement, bool wake) {
  return send(encode(announcement), wake);
}

Status RankAgent::send(std::span<const std::byte> bytes, bool wake) {
  control_bytes_.fetch_add(bytes.size(), std::memory_order_relaxed);
  {
    const MutexLock lock(announce_mutex_);
    // The flag is set before the leader can see that this rank waits for room. It rings this rank
    // when it has made room, and the thread that then drives must see the flag and wait for the
    // lock.
    backlog_.store(true, std::memory_order_seq_cst);
    RONDE_RETURN_IF_ERROR(announcements_.post(bytes));
    backlog_.store(announcements_.backlog().value() > 0, std::memory_order_seq_cst);
  }
  ring_leader(wake);
  return {};
}

void RankAgent::ring_leader(bool wake) {
  if (control_node_) {
    hooks_.notify(wake);
  } else {
    board_.doorbell(kLeader).ring();
  }
}

Status RankAgent::flush_announcements() {
  if (!backlog_.load(std::memory_order_seq_cst)) return {};
  const MutexLock lock(announce_mutex_);
  RONDE_ASSIGN_OR_RETURN(const auto flushed, announcements_.flush());
  backlog_.store(!flushed, std::memory_order_seq_cst);
  if (announcements_.take_added()) board_.doorbell(kLeader).ring();
  return {};
}

}  // namespace ronde::runtime
