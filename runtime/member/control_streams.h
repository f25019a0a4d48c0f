// SPDX-License-Identifier: Apache-2.0
// A rank's ends of its streams on the board: announcements to the leader of its host, and the
// decisions that come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "base/status.h"
#include "collectives/board/board.h"
#include "runtime/member/rank_context.h"
#include "runtime/negotiate/messages.h"

namespace ronde::runtime {

// Owns the two ends, of which a board has one pair for each rank: all members of a rank share this
// object, and whoever steps them hands each decision to the one that it is for.
//
// Thread safety: flush() and next() are for the agent; the rest may be called from any thread.
class ControlStreams {
 public:
  // notify: rings this rank's own doorbell from within this process (AgentRunner::notify).
  using Notify = std::function<void(bool wake)>;
  ControlStreams(const RankContext& context, Notify notify);

  // Room for a message, so that send() needs no memory for it.
  void reserve(std::size_t bytes);
  // wake = false: the caller's next call is wait().
  base::Status send(std::span<const std::byte> announcement, bool wake);
  void ring_leader(bool wake) const;

  // Whether something had no room, and flush() must write it.
  [[nodiscard]] bool has_backlog() const { return backlog_.load(std::memory_order_seq_cst); }
  base::Status flush();
  // The next decision; nullopt: none has come.
  base::Result<std::optional<Decision>> next();

  // For what goes over the board beside the streams.
  void count(std::size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  const RankContext& context_;
  const Notify notify_;
  base::Mutex mutex_;
  collectives::StreamWriter announcements_ RONDE_GUARDED_BY(mutex_);
  std::atomic<bool> backlog_{false};
  collectives::StreamReader decisions_;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace ronde::runtime
