// SPDX-License-Identifier: Apache-2.0
// Runs an Agent: one thread at a time holds the role of driving it. Whoever waits, works: a thread
// in wait() takes the role if it is free; otherwise, and when it has nothing to do, it sleeps on a
// word of its own. The background thread sleeps in an epoll and drives when no other thread does.
// The protocol, with the reasons why no thread sleeps for ever, is in agent_role.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/board/doorbell.h"
#include "runtime/drive/agent.h"

namespace ronde::runtime {

// It owns the background thread and the epoll; agent, clock and bell belong to the caller.
//
// Thread safety: every function may be called from any thread, except that only the owner calls
// start(), stop() and the destructor, and no thread may be in wait() when stop() is called.
class AgentRunner {
 public:
  struct Options {
    // How long a waiter watches with the CPU's pause before it yields.
    base::Nanoseconds spin = std::chrono::microseconds(10);
    // How much longer it goes on with sched_yield before it sleeps: a thread with work gets the
    // core.
    base::Nanoseconds waiter_yield = std::chrono::milliseconds(1);
    // How much longer the background thread goes on with sched_yield while the agent is busy().
    base::Nanoseconds yield = std::chrono::microseconds(100);
    // How long the background thread watches before it sleeps; it never spins for long, because the
    // program needs the cores. While the agent is busy() it watches for `yield`.
    base::Nanoseconds background_watch = std::chrono::microseconds(5);
    // More ranks than cores they may use: yield at once instead of spinning.
    bool oversubscribed = false;
    // No background thread: the agent is driven only inside wait() and poll(), which only the
    // thread that called start() may call.
    bool caller_driven = false;
    // Name of the background thread; the kernel keeps 15 characters.
    std::string thread_name = "ronde";
  };

  // What happened since start, for statistics and tests.
  struct Counters {
    std::uint64_t background_wakeups = 0;  // times the background thread came out of its epoll
    std::uint64_t waiter_sleeps = 0;       // times a thread in wait() went to sleep
    std::uint64_t hand_overs = 0;          // times a leaving driver granted the role to a waiter
  };

  // `agent`, `clock` and the memory behind `bell` must outlive the runner. `bell` is this rank's
  // own doorbell.
  AgentRunner(Agent& agent, collectives::Doorbell bell, const base::Clock& clock,
              const Options& options);
  ~AgentRunner();
  AgentRunner(const AgentRunner&) = delete;
  AgentRunner& operator=(const AgentRunner&) = delete;

  // Starts the background thread, which blocks all signals. Call it once.
  base::Status start();
  // Ends the background thread; the agent is not stepped after it. May be called again.
  void stop();

  // Asks for one call of Agent::on_event(fd), and a do_work() after it, when `fd` becomes readable.
  // Only one, because a pidfd stays readable for ever; calling watch() again, on any thread, asks
  // for one more.
  base::Status watch(int fd);

  // The caller promises to call wait() right after it has announced new work, so that rings
  // meanwhile need not wake the background thread. If it breaks the promise, rings wake no thread
  // of this rank until the next wait() or timer.
  void will_wait();

  // Instead of will_wait(), for a caller that will probably call wait() after it has announced new
  // work: no thread is woken, unless the caller is wrong. It calls defer() before and owe() after
  // the announcement, and between them notify(false) where it would call notify(true). If it does
  // not wait, the background thread goes on with the work within kMostOwed of `submitted`.
  void defer();
  void owe(base::Instant submitted);
  // After an announcement without either: another thread's defer() may have silenced the bell.
  void pay();
  // Every so often the background thread wakes up while rings are deferred, which on two cores
  // costs two busy ranks some tens of microseconds: at 200 us a loop of 64 KiB lost a tenth.
  static constexpr base::Nanoseconds kMostOwed = std::chrono::milliseconds(1);

  // There is new work for the agent in this process. With wake_background = false the caller
  // promises that its very next call is wait() for that work: then no thread is woken, and no
  // system call made.
  void notify(bool wake_background);

  // After will_wait() and an announcement, for a caller that does not wait: does in this thread
  // what another one would be woken for, unless one drives already. Never blocks.
  void help();

  // Waits until `completion` is done or the clock has reached `deadline`, and drives the agent
  // meanwhile if no other thread does. True when it is done, even if the deadline has passed too.
  [[nodiscard]] bool wait(Completion& completion, base::Instant deadline);

  // Returns whether `completion` is done; never blocks. Without a background thread it drives the
  // agent one step, if no other thread does: a caller that only asks would ask for ever otherwise.
  [[nodiscard]] bool poll(Completion& completion);

  // Sets `completion` to done: one exchange, and a system call only for a thread that sleeps until
  // then. The agent calls it inside do_work(); other threads may call it too.
  void complete(Completion& completion);

  [[nodiscard]] Counters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ronde::runtime
