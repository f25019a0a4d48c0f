// SPDX-License-Identifier: Apache-2.0
// The interface of what makes progress, and the flag that something is done. An Agent is an object
// that is stepped; the AgentRunner (agent_runner.h) decides which thread steps it and which sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "runtime/drive/sleep_state.h"

namespace ronde::runtime {

// One step machine. The thread that holds the role of driving it (the background thread or a thread
// inside AgentRunner::wait), called the holder, calls the functions below, so there is never more
// than one such thread at a time, and each sees all that the one before it did.
//
// Thread safety: as each function states; only on_event() may run beside the others.
class Agent {
 public:
  virtual ~Agent() = default;

  // Looks at everything that may have arrived (submissions, the board, the network, timers), does
  // one step of each piece of work that can go on, and returns how many steps it did; 0 means that
  // all work waits. Never blocks and never runs user code. The runner reads the doorbell before
  // every call, so the call sees everything that was written before a ring. It says in `sleep`
  // which descriptors it has taken all of, and at the end whether work is left that nothing will
  // announce.
  [[nodiscard]] virtual int do_work(SleepState& sleep) = 0;

  // True while work is in flight here that is about to go on, for which watching longer before
  // sleeping pays. Called by the holder.
  [[nodiscard]] virtual bool busy() = 0;

  // From now on a peer that lets work in flight here go on must ring this rank's doorbell (true),
  // or need not (false). Peers that move data by counters ring only those ranks that asked, so a
  // holder asks before it stops watching a busy() agent, and then looks once more: that look finds
  // what a peer did before it saw the request. Called by the holder, with true and false
  // alternating.
  virtual void want_rings(bool wanted) = 0;

  // True if a holder that stops watching must call want_rings(true) although the agent is not
  // busy(): other hosts may send at any time, and their descriptors are watched only then, since
  // each message would wake the background thread beside a thread that looks anyway. Called by the
  // holder.
  [[nodiscard]] virtual bool has_descriptors() { return false; }

  // True while something is outstanding that rings no doorbell (an MPI request): the next do_work()
  // must follow within a millisecond. Called by the holder.
  [[nodiscard]] virtual bool needs_polling() = 0;

  // True while what is in flight here waits for something that makes a watched descriptor readable:
  // messages of other hosts take their time, and the program needs the core meanwhile. Called by
  // the holder.
  [[nodiscard]] virtual bool awaits_descriptor() { return false; }

  // When the next timer is due (stall checks); base::kNever without one. Called by the holder.
  [[nodiscard]] virtual base::Instant next_deadline() = 0;

  // The watched descriptor `fd` became readable (AgentRunner::watch), which is none of the sleep
  // state's. Called by the background thread while another thread may hold the role, so it may only
  // touch atomics and its own locks. A do_work() follows without a ring.
  virtual void on_event(int fd) = 0;
};

// A flag that threads may wait for; part of a work handle. AgentRunner::complete() sets it,
// AgentRunner::wait() waits for it.
//
// Thread safety: any number of threads may wait for it and any thread may complete it. It may be
// destroyed as soon as done() is true and no wait() for it is running, even while complete() has
// not returned yet.
class Completion {
 public:
  enum State : std::uint32_t {
    kPending = 0,
    kAwaited = 1,  // pending, and a thread may sleep until it is done
    kDone = 2,
  };

  Completion() = default;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // True from complete() on; what was written before complete() is visible then.
  [[nodiscard]] bool done() const { return word_.load(std::memory_order_acquire) == kDone; }
  // Makes it pending again. No thread may be waiting for it or completing it.
  void reset() { word_.store(kPending, std::memory_order_relaxed); }

  // Only the role protocol uses it.
  [[nodiscard]] std::atomic<std::uint32_t>& word() { return word_; }

 private:
  std::atomic<std::uint32_t> word_{kPending};
};

}  // namespace ronde::runtime
