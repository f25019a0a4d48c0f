// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/member.h"

#include <new>
#include <string>
#include <utility>
#include <variant>

#include "runtime/timeline/timeline.h"

namespace ronde::runtime {

using base::Code;
using base::Status;
using collectives::Arrival;

Member::Member(const RankContext& context, ControlStreams& streams, const FailurePath& failure,
               TensorTable& table, Owner& owner)
    : context_(context), streams_(streams), failure_(failure), table_(table), owner_(owner) {}

// ---- submitting ----

std::vector<std::byte> Member::make_request(const LocalTensor& tensor) {
  std::vector<std::byte> bytes = encode(RequestAnnouncement{
      tensor.name, tensor.place, tensor.signature, tensor.step, tensor.not_finite});
  streams_.reserve(bytes.size());
  return bytes;
}

// Keeps the highest number.
void Member::note_step(StepNumber step) {
  if (!step.exists()) return;
  std::uint64_t before = last_step_.load(std::memory_order_relaxed);
  while (before < step.word() &&
         !last_step_.compare_exchange_weak(before, step.word(), std::memory_order_relaxed)) {
  }
}

Arrival Member::count_in(const LocalTensor& tensor, const Ticket& ticket) {
  note_step(tensor.step);
  const collectives::Board& board = context_.board;
  // One that is stale must not overwrite the step of this rank's later tensor at the entry.
  if (ticket.entry < 0 || board.arrival(ticket.entry).generation != ticket.generation) {
    return Arrival::kStale;
  }
  // The mark comes before the count: once the last rank has counted itself in, the batch may finish
  // at any moment.
  board.mark_arrived(ticket.entry, received_batches_.load(std::memory_order_relaxed),
                     tensor.step.word(), tensor.submitted, tensor.waited);
  const auto expected =
      ticket.expected > 0 ? ticket.expected : static_cast<std::uint32_t>(board.ranks());
  const auto arrival =
      board.arrive(ticket.entry, ticket.generation, expected, tensor.step.must_agree());
  if (arrival == Arrival::kStale) {
    board.unmark_arrived(ticket.entry);
    return arrival;
  }
  planned_requests_.fetch_add(1, std::memory_order_relaxed);
  streams_.count(sizeof(std::uint64_t));
  return arrival;
}

void Member::push(std::int32_t entry, bool wake) {
  context_.board.push_ready(entry);
  streams_.ring_leader(wake);
}

Status Member::announce(const LocalTensor& tensor, const Ticket& ticket,
                        std::vector<std::byte> request, bool wake) {
  const Arrival arrival = count_in(tensor, ticket);
  if (arrival == Arrival::kLast) push(ticket.entry, wake);
  if (arrival != Arrival::kStale) return {};
  full_requests_.fetch_add(1, std::memory_order_relaxed);
  try {
    if (request.empty()) request = make_request(tensor);
    return streams_.send(request, wake);
  } catch (const std::bad_alloc&) {
    // The tensor is in the table already, and the agent may have seen it there.
    failure_.fail_for_memory();
    return {};
  }
}

Status Member::announce(const Announcement& announcement, bool wake) {
  return streams_.send(encode(announcement), wake);
}

Status Member::with_steps(const Status& why, const LocalTensor& tensor) const {
  const auto left = StepNumber::of_word(left_step_.load(std::memory_order_acquire));
  if (why.code() != Code::kClosed || !left.exists()) return why;
  const std::int32_t rank = left_rank_.load(std::memory_order_relaxed);
  const std::string text = steps_behind(rank, left, context_.rank, tensor.step);
  if (text.empty()) return why;
  return Status::remote(why.code(), why.message() + ": " + text + kOneLeftOut, why.place(), rank);
}

// ---- deciding ----

Status Member::on_decision(const Decision& decision) {
  if (const auto* batch = std::get_if<BatchDecision>(&decision)) return on_batch(*batch);
  if (const auto* bind = std::get_if<BindDecision>(&decision)) return table_.bind(*bind);
  if (const auto* evict = std::get_if<EvictDecision>(&decision)) {
    table_.evict(evict->entry);
  } else if (const auto* error = std::get_if<ErrorDecision>(&decision)) {
    const LocalTensorPtr tensor = table_.remove_waiting(error->name);
    if (tensor) {
      owner_.on_failed(tensor, context_.told(Status::remote(error->code, error->text, error->place,
                                                            error->rank)));
    }
  } else if (const auto* notice = std::get_if<NoticeDecision>(&decision)) {
    owner_.on_notice(*notice);
  } else if (const auto* departed = std::get_if<DepartedDecision>(&decision)) {
    on_departed(*departed);
  } else if (const auto* joined = std::get_if<JoinedDecision>(&decision)) {
    on_joined(*joined);
  }
  return {};
}

Status Member::on_batch(const BatchDecision& decision) {
  const std::uint64_t received = received_batches_.load(std::memory_order_relaxed);
  if (decision.sequence != received + 1 || decision.items.empty()) {
    return Status::error(Code::kInternal, "batch " + std::to_string(decision.sequence) +
                                              " came after batch " + std::to_string(received));
  }
  // A thread that submits a tensor of this batch again has seen the work done, and with it this
  // store.
  received_batches_.store(decision.sequence, std::memory_order_relaxed);
  RONDE_ASSIGN_OR_RETURN(auto claimed, table_.claim(decision.items));
  if (context_.timeline != nullptr && context_.timeline->on()) note_decided(decision, claimed);
  return owner_.on_batch(decision.sequence, std::move(claimed));
}

void Member::on_joined(const JoinedDecision& decision) {
  if (decision.all) {
    joined_.clear();
    table_.leave_out({}, 0);
    if (const LocalTensorPtr join = table_.end_join()) owner_.on_all_joined(join, decision.rank);
    return;
  }
  joined_.add(decision.rank);
  const std::int32_t host = context_.shape.host_of(context_.rank);
  table_.leave_out(joined_.ranks(), joined_.present(context_.shape.ranks_of(host)));
}

// For the timeline: when the batch of these tensors was known here, and whom they waited for.
void Member::note_decided(const BatchDecision& decision,
                          const TensorTable::Claimed& claimed) const {
  const base::Instant now = context_.clock.now();
  for (std::size_t i = 0; i < claimed.tensors.size(); ++i) {
    LocalTensor& tensor = *claimed.tensors[i];
    tensor.decided = now;
    tensor.waited_for = last_to_arrive(decision.items[i], tensor, now);
  }
}

// The rank of this host that has submitted the tensor last, by the times that ranks leave at its
// entry of the plan. A tensor without one, as in the first step, has none.
std::int32_t Member::last_to_arrive(const BatchItem& item, const LocalTensor& tensor,
                                    base::Instant now) const {
  if (item.entry < 0) return kWaitedForUnknown;
  const collectives::Board& board = context_.board;
  std::int32_t last = board.rank();
  base::Instant at = tensor.submitted;
  for (std::int32_t position = 0; position < board.ranks(); ++position) {
    const base::Instant arrived = board.arrival_time(position, item.entry);
    if (position == board.rank() || arrived <= at) continue;
    at = arrived;
    last = position;
  }
  // Where this host was complete long before the decision, another one was not.
  const bool elsewhere = context_.shape.hosts() > 1 && now - at > at - tensor.submitted;
  return elsewhere ? kWaitedForOtherHosts : context_.rank_of_job(context_.rank_at(last));
}

// Without the departed rank nothing can be agreed, so tensors that are in no batch fail now.
void Member::on_departed(const DepartedDecision& departed) {
  const std::int32_t rank = departed.rank;
  if (left_step_.load(std::memory_order_relaxed) == 0 && rank != context_.rank) {
    left_rank_.store(rank, std::memory_order_relaxed);
    left_step_.store(departed.step.word(), std::memory_order_release);
  }
  const Status why = context_.told(
      Status::remote(Code::kClosed,
                     "rank " + std::to_string(rank) +
                         " has closed its engine, so no operation can complete any more",
                     "", rank));
  table_.shut(why);
  for (const LocalTensorPtr& tensor : table_.remove_all(false)) {
    owner_.on_failed(tensor, with_steps(why, *tensor));
  }
  // Once its leader or the coordinator has departed, no further decision arrives here, so this rank
  // must not wait for its own departure.
  if (rank == context_.rank || rank == kCoordinator || rank == context_.rank_at(kLeader)) {
    owner_.on_departed();
  }
}

}  // namespace ronde::runtime
