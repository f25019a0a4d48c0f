// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks, as calls of an engine.
#include <functional>
#include <span>
#include <utility>

#include "runtime/engine/engine.h"
#include "runtime/engine/engine_patience.h"
#include "runtime/sets/set_board.h"

namespace ronde::runtime {

using base::Result;

Result<Engine::WorkPtr> Engine::send(const MessageRequest& request) {
  return begin_message(request, &Messages::send);
}

Result<Engine::WorkPtr> Engine::receive(const MessageRequest& request) {
  return begin_message(request, &Messages::receive);
}

Result<Engine::WorkPtr> Engine::begin_message(const MessageRequest& request, BeginMessage begin) {
  RONDE_RETURN_IF_ERROR(usable());
  const Inside inside(submitting_threads_);
  agent_.threads().submitted();
  Messages& messages = agent_.messages();
  // The leader of a host writes to the link itself, in the thread that sends.
  const bool leads = (within_ ? within_->job->local_rank_ : local_rank_) == kLeader;
  const bool helps = begin == &Messages::send && leads && messages.may_be_far(request.rank) &&
                     is_driver() && open_.load(std::memory_order_acquire);
  if (helps) runner_.will_wait();
  auto work = std::invoke(begin, messages, request);
  if (helps) runner_.help();
  // A channel that nobody can read any more is the end of the job.
  if (!work.ok() && work.status().code() == base::Code::kInternal) {
    agent_.failure().fail(work.status(), rank_);
  }
  // Large messages move in the agent, and nothing has rung for one that was there already.
  const bool moves = messages.moving() && !request.will_wait;
  // Whoever sleeps for the agent does not know of this deadline.
  if (moves || request.deadline > base::Nanoseconds(0)) runner_.notify(true);
  if (!work.ok()) return agent_.context().told(work.status());
  return work;
}

// The channels of a process set go with it, those of the job stay.
Result<std::span<std::byte>> Engine::allocate_channel(base::Bytes bytes) {
  if (within_ == nullptr) return memory_->arena().allocate(bytes);
  RONDE_ASSIGN_OR_RETURN(auto memory, SetMemory::plain(memory_, bytes));
  const std::span<std::byte> channel = memory->bytes();
  within_->job->agent_.openings().keep(within_->identity.number, std::move(memory));
  return channel;
}

bool Engine::attend(Work& work, bool spins) {
  const Inside inside(waiting_threads_);
  return agent_.messages().attend(work, spins);
}

}  // namespace ronde::runtime
