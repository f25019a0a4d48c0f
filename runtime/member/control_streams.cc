// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/control_streams.h"

#include <utility>

namespace ronde::runtime {

using base::MutexLock;
using base::Status;

ControlStreams::ControlStreams(const RankContext& context, Notify notify)
    : context_(context),
      notify_(std::move(notify)),
      announcements_(context.board.announce_writer()),
      decisions_(context.board.decision_reader(kLeader)) {}

void ControlStreams::reserve(std::size_t bytes) {
  const MutexLock lock(mutex_);
  announcements_.reserve(bytes);
}

Status ControlStreams::send(std::span<const std::byte> bytes, bool wake) {
  count(bytes.size());
  {
    const MutexLock lock(mutex_);
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

void ControlStreams::ring_leader(bool wake) const {
  if (context_.leads()) {
    notify_(wake);
  } else {
    context_.board.doorbell(kLeader).ring();
  }
}

Status ControlStreams::flush() {
  if (!has_backlog()) return {};
  const MutexLock lock(mutex_);
  RONDE_ASSIGN_OR_RETURN(const auto flushed, announcements_.flush());
  backlog_.store(!flushed, std::memory_order_seq_cst);
  if (announcements_.take_added()) context_.board.doorbell(kLeader).ring();
  return {};
}

base::Result<std::optional<Decision>> ControlStreams::next() {
  RONDE_ASSIGN_OR_RETURN(const auto bytes, decisions_.poll());
  if (!bytes.has_value()) return std::optional<Decision>();
  count(bytes->size());
  RONDE_ASSIGN_OR_RETURN(auto decision, decode_decision(*bytes));
  return std::optional<Decision>(std::move(decision));
}

}  // namespace ronde::runtime
