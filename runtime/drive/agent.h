// SPDX-License-Identifier: Apache-2.0
// What makes progress, and what says that something is finished. An Agent is an object that is
// stepped; who steps it, and who sleeps meanwhile, is the AgentRunner's business (agent_runner.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace ronde::runtime {

// One step machine. Whoever holds the role of driving it (the background thread or a thread inside
// AgentRunner::wait) calls the functions below, so there is never more than one such thread at a
// time, and each sees all that the one before it did. Thread safety: as said at each function; only
// runnable() and on_event() may run beside the others.
class Agent {
 public:
  virtual ~Agent() = default;

  // Looks at everything that may have come (submissions, the board, the network, timers), does one
  // step of each piece of work that can go on, and returns how much it did; 0 means that all of it
  // waits. Never blocks and never runs user code. The runner reads the doorbell before every call,
  // so whatever was written before a ring is seen by the call that follows it.
  [[nodiscard]] virtual int do_work() = 0;

  // True when something is left over that no ring will announce: the last do_work() stopped early.
  // Called by the holder, and by a thread that has just given the role up: may only read atomics.
  [[nodiscard]] virtual bool runnable() = 0;

  // True while work is in flight here that is about to go on: worth watching longer before
  // sleeping. Called by the holder.
  [[nodiscard]] virtual bool busy() = 0;

  // Until it is told otherwise, whatever lets work in flight here go on must ring this rank's
  // doorbell (true), or need not (false). Peers that move data by counters ring only those who
  // asked, so a holder asks before it stops watching a busy() agent, and then looks once more: what
  // a peer did before it saw the wish is found by that look. Called by the holder, true and false
  // by turns.
  virtual void want_rings(bool wanted) = 0;

  // True while something is outstanding that rings nobody (an MPI request): the next look must come
  // within a millisecond. Called by the holder.
  [[nodiscard]] virtual bool needs_polling() = 0;

  // When the next timer is due (stall checks); base::kNever without one. Called by the holder.
  [[nodiscard]] virtual base::Instant next_deadline() = 0;

  // The watched descriptor `fd` became readable (AgentRunner::watch). Called by the background
  // thread while another thread may hold the role: may only touch atomics and locks of its own. A
  // do_work() follows; no ring is needed for it.
  virtual void on_event(int fd) = 0;
};

// The end of something that threads may wait for: part of a work handle.
// AgentRunner::complete() ends it, AgentRunner::wait() waits for it.
// Thread safety: any number of threads may wait for it and any thread may complete it. It may be
// destroyed as soon as done() is true and no wait() for it is running, even while complete() has
// not returned yet.
class Completion {
 public:
  enum State : std::uint32_t {
    kPending = 0,
    kAwaited = 1,  // pending, and somebody may sleep until it is done
    kDone = 2,
  };

  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // True from complete() on; what was written before complete() is visible then.
  [[nodiscard]] bool done() const { return word_.load(std::memory_order_acquire) == kDone; }
  // Makes it pending again. Nobody may be waiting for it or completing it.
  void reset() { word_.store(kPending, std::memory_order_relaxed); }

  // For the role protocol alone.
  [[nodiscard]] std::atomic<std::uint32_t>& word() { return word_; }

 private:
  std::atomic<std::uint32_t> word_{kPending};
};

}  // namespace ronde::runtime
