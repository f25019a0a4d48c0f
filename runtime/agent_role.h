// SPDX-License-Identifier: Apache-2.0
// The role of driving the agent: how it is taken, left, granted and slept without. Everything that
// decides whether a thread sleeps is in this file. It is a template over its environment (the
// atomics, the mutex, the clock, the ways to sleep): production is in agent_runner.cc; the test
// runs the same text in a model and visits every interleaving, delayed stores included.
//
// The words, and who may change them:
// - role: free or held. Taken by a compare-and-swap; freed by the holder alone.
// - armed: the doorbell's flag. 1: whoever rings must wake the background thread. Set by the thread
//   that leaves, just after the role became free, and cleared by the one that takes it or is about
//   to (hush).
// - rings and posts: what came; rings of the doorbell, posts of threads that drive the agent next.
// - seen: rings + posts as the holder read them before it last looked at everything.
// - sleep_until: when the background thread wakes up by itself.
// - node.state of one thread in wait(): running, parked (asleep, or about to be), granted, woken. A
//   parked node is in the list; its state changes only under the mutex, so that "was it still there
//   when it was granted?" has one answer. Outside it only the sleeper reads it.
// - completion: pending, awaited (somebody may be asleep for it), done.
// - asked: whether peers that move work in flight along must ring. A note of the holder to itself;
//   what the peers read is the agent's business (Agent::want_rings).
//
// Why nobody sleeps for ever. The words (but `seen`, a note of the holder to itself) are seq_cst,
// and both sides write their own before they read the other's:
// - poster:      rings += 1;            then wakes if armed
//   leaver:      role = free; armed = 1; then rings != seen?
// - post():      posts += 1;            then takes the role
//   leaver:      role = free;           then posts != seen?
// - sleeper:     awaited, unless done; then parks and sleeps
//   complete():  done;                  then wakes the parked if it was awaited
// - peer:        moves a counter;       then rings if it is asked to
//   holder:      asks for rings;        then looks once more, and only then sleeps or leaves
// - background:  sleep_until = never;   then takes the role
//   leaver:      role = free;           then is sleep_until too late for the agent's timers?
// A role that is held never rests on a sleeper: a driver that goes to sleep frees it, and a thread
// that is granted it is woken. A bell that somebody disarmed is armed again: whoever was woken for
// it took the role, or found it held by a thread that arms after it has left. So the role is held
// by a thread that runs, or the bell is armed, or somebody is about to arm it and look again.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace ronde::runtime {

// What a holder or a sleeper can be; values of the words above.
struct RoleWords {
  enum Role : std::uint32_t { kFree = 0, kHeld = 1 };
  enum Node : std::uint32_t { kRunning = 0, kParked = 1, kGranted = 2, kWoken = 3 };
  enum Completion : std::uint32_t { kPending = 0, kAwaited = 1, kDone = 2 };
  // Who watches before it sleeps: the driver, a waiter while another thread drives, the background.
  enum class Watcher { kDriver, kBystander, kBackground };
  // Places in the loops, for the model: nothing but the place and its number lives on there.
  enum class Place { kWait, kDrive, kBystand, kPark, kSleep, kLeave, kTurn, kBackground };
};

// Env provides:
// - Time, Completion; Node, constructed from Env& and Completion&; Lock, a scoped lock of `mutex`;
//   Watch, constructed from Env& and Watcher, with again(busy): false when it is time to sleep
// - words().role, .posts, .seen, .sleep_until, state(Node&), word(Completion&): atomics
// - rings(), armed(), arm(), disarm(): seq_cst; wake_background(): whether armed or not
// - do_work(), runnable(), busy(), due(): the agent's; due() is when it must be looked at next
// - want_rings(bool): the agent's, and asked(): what it was told last
// - expired(Time); sleep(Node&, Time): until its state is not kParked; wake(Node&)
// - under the mutex: enlist(Node&), remove(Node&), parked_after(Node*): the next parked node of the
//   list, the first after nullptr, or nullptr; the longest asleep comes first
// - checkpoint(Place, int): nothing; for the model
// Thread safety: any thread may call wait(), complete() and post(); the background thread alone
// calls background_turn().
template <typename Env>
class AgentRole : private RoleWords {
 public:
  using Time = typename Env::Time;
  using Completion = typename Env::Completion;

  explicit AgentRole(Env& env) : env_(env) {}

  // The calling thread goes into wait() next: until then nobody who rings need wake the background
  // thread. wait() makes up for it, whatever it finds.
  void hush() { env_.disarm(); }

  // There is new work, and the calling thread goes into wait() next.
  void post() { env_.words().posts.fetch_add(1, std::memory_order_seq_cst); }

  // Ends `completion`. It is touched once, by the exchange, and may be gone after that: the
  // sleepers are found through the list, where its address is only compared.
  void complete(Completion& completion) {
    const std::uint32_t before = env_.word(completion).exchange(kDone, std::memory_order_seq_cst);
    if (before != kAwaited) return;
    Lock lock(env_.mutex);
    for (Node* node = env_.parked_after(nullptr); node != nullptr; node = env_.parked_after(node)) {
      if (node->waits_for(completion)) rouse(*node, kWoken);
    }
  }

  bool wait(Completion& completion, Time deadline) {
    if (done(completion)) {
      pass_by();
      return true;
    }
    Node node(env_, completion);
    bool holder = take();
    for (;;) {
      env_.checkpoint(Place::kWait, holder ? 1 : 0);
      if (holder) {
        if (drive(completion, deadline)) {
          leave();
          return done(completion);
        }
        const Time due = env_.due();
        if (!give_up(node, completion)) continue;
        if (fresh()) {
          holder = withdraw(node) || take();
          continue;
        }
        if (due < sleep_until()) env_.wake_background();
      } else {
        stand_by(completion);
        env_.checkpoint(Place::kPark, 0);
        if (!park(node, completion)) {
          if (done(completion)) return true;
          holder = take();
          continue;
        }
      }
      env_.checkpoint(Place::kSleep, 0);
      env_.sleep(node, deadline);
      holder = withdraw(node);
      if (done(completion) || env_.expired(deadline)) {
        // Granted or not was decided in withdraw(); who has the role leaves it properly.
        if (holder) leave();
        return done(completion);
      }
      holder = holder || take();
    }
  }

  // One turn of the background thread: drives until nothing is left to do, and returns until when
  // it may sleep if nothing wakes it. It hands the role to nobody: it is the one that sleeps for
  // all.
  Time background_turn() {
    for (;;) {
      env_.checkpoint(Place::kTurn, 0);
      // Before the take: if it fails, the holder frees the role later and then reads this.
      env_.words().sleep_until.store(Env::kNever, std::memory_order_seq_cst);
      if (!take()) return Env::kNever;  // the holder looks at everything before it leaves
      {
        Watch watch(env_, Watcher::kBackground);
        do {
          while (look() > 0) env_.checkpoint(Place::kBackground, 0);
          env_.checkpoint(Place::kBackground, 1);
        } while (watch.again(env_.busy()) || listen());
      }
      const Time due = env_.due();
      env_.words().sleep_until.store(due, std::memory_order_seq_cst);
      release();
      if (!fresh()) return due;
    }
  }

 private:
  using Lock = typename Env::Lock;
  using Node = typename Env::Node;
  using Watch = typename Env::Watch;

  bool done(Completion& completion) {
    return env_.word(completion).load(std::memory_order_seq_cst) == kDone;
  }

  Time sleep_until() { return env_.words().sleep_until.load(std::memory_order_seq_cst); }

  bool take() {
    std::uint32_t expected = kFree;
    if (!env_.words().role.compare_exchange_strong(expected, kHeld, std::memory_order_seq_cst)) {
      return false;
    }
    // Posters need not wake anybody while somebody looks anyway.
    env_.disarm();
    return true;
  }

  // Gives the role to nobody. fresh() must be asked afterwards.
  void release() {
    // In this order. Armed while the role is still held, a late poster (one whose ring was seen
    // long ago) could disarm the bell and wake a background thread that finds the role held and
    // sleeps again: then the role is free, nobody looks, and the next ring wakes nobody.
    env_.words().role.store(kFree, std::memory_order_seq_cst);
    env_.arm();
  }

  // One look at everything. What comes after the counts are read makes fresh() true.
  int look() {
    const auto came = env_.rings() + env_.words().posts.load(std::memory_order_seq_cst);
    env_.words().seen.store(came, std::memory_order_relaxed);
    const int amount = env_.do_work();
    // It goes on, and is watched: a ring would only cost the peers time.
    if (amount > 0 && env_.asked()) env_.want_rings(false);
    return amount;
  }

  // Holder that is about to stop watching. True if work is in flight that could have gone on
  // without a ring until now: then one more look is due.
  bool listen() {
    if (env_.asked() || !env_.busy()) return false;
    env_.want_rings(true);
    return true;
  }

  // Something came since the holder last looked.
  bool rung() {
    const auto came = env_.rings() + env_.words().posts.load(std::memory_order_seq_cst);
    return came != env_.words().seen.load(std::memory_order_relaxed);
  }

  // The same, or something is left over. Asked by a thread that has just freed the role: if another
  // took it meanwhile the answer may be too new, and is then not needed.
  bool fresh() { return rung() || env_.runnable(); }

  // Holder: works until `completion` is done or the deadline has passed (true), or until it is time
  // to sleep (false). Looks at least once.
  bool drive(Completion& completion, Time deadline) {
    for (;;) {
      Watch watch(env_, Watcher::kDriver);
      for (;;) {
        env_.checkpoint(Place::kDrive, 0);
        const int amount = look();
        if (done(completion) || env_.expired(deadline)) return true;
        if (amount > 0) break;  // watch from the start again
        if (!watch.again(env_.busy()) && !listen()) return false;
      }
    }
  }

  // Another thread drives, and may be about to finish or to leave: worth a short look before
  // sleeping.
  void stand_by(Completion& completion) {
    Watch watch(env_, Watcher::kBystander);
    while (watch.again(false)) {
      env_.checkpoint(Place::kBystand, 0);
      if (done(completion)) return;
      if (env_.words().role.load(std::memory_order_relaxed) == kFree) return;
    }
  }

  // Of a thread that need not wait after all. A caller of hush() must not leave the bell silent,
  // nor a caller of post() its work unnoticed; whoever holds the role arms and looks when it
  // leaves.
  void pass_by() {
    if (!env_.armed() && env_.words().role.load(std::memory_order_seq_cst) == kFree) env_.arm();
    if (fresh()) env_.wake_background();
  }

  // Holder whose own work is done or out of time: another thread that waits goes on, or nobody.
  void leave() {
    env_.checkpoint(Place::kLeave, 0);
    // Other work may be in flight. Once nobody watches it, rings bring the background thread; but
    // if it moves even now, that takes over at once. And where somebody rang for what was seen
    // before he did, a look is cheaper than waking it.
    const bool moves = (listen() || rung()) && look() > 0;
    const Time due = env_.due();
    {
      Lock lock(env_.mutex);
      if (Node* next = env_.parked_after(nullptr); next != nullptr) {
        rouse(*next, kGranted);
        return;
      }
      release();
    }
    if (moves || fresh() || due < sleep_until()) env_.wake_background();
  }

  // Holder that goes to sleep: frees the role and parks. Not to another waiter, which would hand it
  // back just so, for ever. False when `completion` is done: still holder, not parked.
  bool give_up(Node& node, Completion& completion) {
    Lock lock(env_.mutex);
    if (!await(completion)) return false;
    enlist(node);
    release();
    return true;
  }

  // Parks, unless `completion` is done or the role is free to be taken: false.
  bool park(Node& node, Completion& completion) {
    Lock lock(env_.mutex);
    if (env_.words().role.load(std::memory_order_seq_cst) == kFree) return false;
    if (!await(completion)) return false;
    enlist(node);
    return true;
  }

  // Tells complete() that somebody may sleep; false if it is done already.
  bool await(Completion& completion) {
    std::uint32_t expected = kPending;
    return env_.word(completion)
               .compare_exchange_strong(expected, kAwaited, std::memory_order_seq_cst) ||
           expected != kDone;
  }

  void enlist(Node& node) RONDE_REQUIRES(env_.mutex) {
    env_.state(node).store(kParked, std::memory_order_relaxed);
    env_.enlist(node);
  }

  // Not parked any more. True when the role was granted to this thread while it was.
  bool withdraw(Node& node) {
    Lock lock(env_.mutex);
    env_.remove(node);
    return env_.state(node).exchange(kRunning, std::memory_order_seq_cst) == kGranted;
  }

  // Takes a parked thread out of its sleep. The list keeps it until it withdraws, which it cannot
  // do before the mutex is free: the node does not vanish while it is woken.
  void rouse(Node& node, std::uint32_t state) RONDE_REQUIRES(env_.mutex) {
    env_.state(node).store(state, std::memory_order_seq_cst);
    env_.wake(node);
  }

  Env& env_;
};

}  // namespace ronde::runtime
