// SPDX-License-Identifier: Apache-2.0
// The role of driving the agent: how a thread takes, leaves or is granted it, and sleeps without
// it. Everything that decides whether a thread sleeps is in this file, and in sleep_state.h what
// its last look has found. It is a template over its environment, whose real one is in
// agent_runner.cc; the test runs the same text in a model, in every interleaving.
//
// The words, and who may change them:
// - role: free or held. Taken by a compare-and-swap; freed by the holder alone.
// - armed: the doorbell's flag. 1: a poster that rings must wake the background thread. Set by the
//   thread that leaves, just after the role became free, and cleared by the one that takes it or is
//   about to (disarm).
// - rings and posts: counts of new work; rings of the doorbell, posts of threads that drive next.
// - seen: rings + posts as the holder read them before its last look at everything.
// - sleep_until: when the background thread wakes up by itself.
// - node.state of one thread in wait(): running, parked (asleep, or about to be), granted, woken. A
//   parked node is in the list; its state changes only under the mutex, so that "was it still there
//   when it was granted?" has one answer. Outside it only the sleeper reads it.
// - completion: pending, awaited (a thread may be asleep for it), done.
// - those of sleep_state.h; the word by which peers know that they must ring is the agent's.
// - owed: 1: a thread has disarmed the bell because it will probably call wait(), without promising
//   it: a ring is owed. Set by that thread, and cleared by the one that takes the role or pays.
//
// Why no thread sleeps for ever. The words (but `seen`, which only the holder uses) are seq_cst,
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
// - defer():     disarms, owed = 1, posts; then is sleep_until soon, or else pays
//   background:  sleep_until = rest;    then takes the role, or leaves it as above
// - pay():       rings += 1;            then arms and looks, if a ring is owed
//   taker:       owed = 0;              then arms as it leaves
//
// A ring that is owed. A thread that submits and then waits needs no other thread, but the engine
// only guesses that it will wait: so the bell may stay disarmed, and a post unseen, no longer than
// the background thread sleeps. To tell a sleeper to sleep less costs what a ring costs. So the
// background thread sleeps for a short time only (rest()) while threads defer often, and a thread
// that finds it sleeping longer than the caller allows rings after all. Whichever comes first
// settles what is owed: the waiter, which takes the role; the next thread that rings for itself
// (pay()), since its ring has found the bell disarmed; the background thread when its sleep ends.
// The order in defer() matters: were the ring owed before the bell is disarmed, a thread could take
// the role in between, clear `owed`, leave and arm the bell, which then is disarmed, nothing owed.
//
// A sleeper never holds the role: a driver that goes to sleep frees it, and a thread that is
// granted it is woken. Whoever is woken by a bell that was disarmed takes the role, or finds it
// held by a thread that arms after it has left. So a thread that runs holds the role, or the bell
// is armed, or a thread is about to arm it and look again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/mutex.h"

namespace ronde::runtime {

// What a holder or a sleeper can be; values of the words above.
struct RoleWords {
  enum Role : std::uint32_t { kFree = 0, kHeld = 1 };
  enum Node : std::uint32_t { kRunning = 0, kParked = 1, kGranted = 2, kWoken = 3 };
  enum Completion : std::uint32_t { kPending = 0, kAwaited = 1, kDone = 2 };
  // A thread that watches before it sleeps: the driver, a waiter while another thread drives, or
  // the background thread.
  enum class Watcher { kDriver, kBystander, kBackground };
  // Places in the loops, for the model: there a thread's state is the place and its number, nothing
  // else.
  enum class Place { kWait, kDrive, kBystand, kPark, kSleep, kLeave, kTurn, kBackground };
};

// Env provides:
// - Time, Completion; Node, constructed from Env& and Completion&; Lock, a scoped lock of `mutex`;
//   Watch, constructed from Env& and Watcher, with again(busy): false when it is time to sleep
// - words().role, .posts, .seen, .sleep_until, .owed, state(Node&), word(Completion&): atomics
// - rings(), armed(), arm(), disarm(): seq_cst; wake_background(): whether armed or not
// - agent(): an Agent, of which do_work(), busy() and want_rings() are used; sleep_state()
// - due(): when do_work() must be called next
// - listens(): whether rings must be asked for before a holder stops watching
// - rest(): until when the background thread, which alone calls it, sleeps for the sake of rings
//   that may be owed; kNever unless threads defer often. Any answer is right
// - expired(Time); wake(Node&); sleep(Node&, Time): until its state is not kParked
// - under the mutex: enlist(Node&), remove(Node&), parked_after(Node*): the next parked node of the
//   list, the first after nullptr, or nullptr; the longest asleep comes first
// - checkpoint(Place, int): does nothing; the model uses it
//
// Thread safety: the background thread alone calls background_turn(); any thread may call the rest.
template <typename Env>
class AgentRole : private RoleWords {
 public:
  using Time = typename Env::Time;
  using Completion = typename Env::Completion;

  explicit AgentRole(Env& env) : env_(env) {}

  // The calling thread calls wait() next: until then a ring need not wake the background thread.
  // wait() arms the bell again or looks, whatever it finds.
  void disarm() { env_.disarm(); }
  // There is new work, and the calling thread calls wait() next.
  void post() { env_.words().posts.fetch_add(1, std::memory_order_seq_cst); }

  // The calling thread is about to announce new work without a ring, and will probably call wait()
  // next. It calls owe() after the announcement, and post() before that where it is for this agent.
  void defer() {
    env_.disarm();
    env_.words().owed.store(1, std::memory_order_seq_cst);
  }

  // The end of a submission that began with defer(): unless the background thread looks by `limit`
  // anyway, the bell is armed again, and that thread is woken if there is something to see.
  void owe(Time limit) {
    if (sleep_until() > limit) settle();
  }

  // Settles what defer() has left. Called after a ring of this process and after a submission that
  // did not defer: they count on a bell that is armed.
  void pay() {
    if (owed()) settle();
  }

  // Sets `completion` to done, by an exchange that is the only access to it: it may be destroyed
  // then, since the sleepers are found through the list, where its address is only compared.
  void complete(Completion& completion) {
    const std::uint32_t before = env_.word(completion).exchange(kDone, std::memory_order_seq_cst);
    if (before != kAwaited) return;
    Lock lock(env_.mutex);
    for (Node* node = env_.parked_after(nullptr); node != nullptr; node = env_.parked_after(node)) {
      if (node->waits_for(completion)) wake(*node, kWoken);
    }
  }

  bool wait(Completion& completion, Time deadline) {
    if (done(completion)) {
      settle();
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
        if (!release_and_park(node, completion)) continue;
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
        // withdraw() decided whether the role was granted; a thread that has it must leave it.
        if (holder) leave();
        return done(completion);
      }
      holder = holder || take();
    }
  }

  // Looks once if the role is free, in place of the wait() that disarm() and post() promise: who
  // holds it looks and arms before it leaves. poll() is for a caller that asks. Neither sleeps.
  void help() {
    if (!take()) return;
    look();
    leave();
  }
  bool poll(Completion& completion) {
    if (!done(completion)) help();
    return done(completion);
  }

  // One turn of the background thread: drives until nothing is left to do, and returns until when
  // it may sleep if nothing wakes it. It does not grant the role to a waiter, because it is the
  // thread that sleeps in place of all.
  Time background_turn() {
    for (;;) {
      env_.checkpoint(Place::kTurn, 0);
      const Time rest = env_.rest();
      // Stored before take(): if that fails, the holder frees the role later and then reads this.
      env_.words().sleep_until.store(rest, std::memory_order_seq_cst);
      if (!take()) return rest;  // the holder looks at everything before it leaves
      {
        Watch watch(env_, Watcher::kBackground);
        do {
          while (look() > 0) env_.checkpoint(Place::kBackground, 0);
          env_.checkpoint(Place::kBackground, 1);
        } while (watch.again(env_.agent().busy()) || listen());
      }
      const Time due = std::min(env_.due(), env_.rest());
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
    // Posters need not wake a thread while this one looks anyway.
    env_.disarm();
    clear_owed();
    return true;
  }

  // Frees the role. The caller must ask fresh() afterwards.
  void release() {
    // The order matters. If the bell were armed while the role is still held, a late poster (one
    // whose ring was seen long ago) could disarm it and wake a background thread that finds the
    // role held and sleeps again: then the role is free, no thread looks, and the next ring wakes
    // none.
    env_.words().role.store(kFree, std::memory_order_seq_cst);
    env_.arm();
  }

  // Looks at everything once. A ring or post after the counts are read makes fresh() true.
  int look() {
    const auto came = env_.rings() + env_.words().posts.load(std::memory_order_seq_cst);
    env_.words().seen.store(came, std::memory_order_relaxed);
    const int amount = env_.agent().do_work(env_.sleep_state());
    // Work goes on, and this thread watches it: a ring would only cost the peers time.
    if (amount > 0) watch_alone();
    return amount;
  }

  // Called by a holder that watches: nobody else need.
  void watch_alone() {
    if (env_.sleep_state().asked()) ask(false);
  }

  void ask(bool wanted) {
    env_.agent().want_rings(wanted);
    env_.sleep_state().ask(wanted);
  }

  // Called by a holder that is about to stop watching: asks the peers for rings. True if work is in
  // flight that could have gone on without a ring until now, or messages may have come, so that the
  // holder must look once more.
  bool listen() {
    if (env_.sleep_state().asked() || !env_.listens()) return false;
    ask(true);
    return true;
  }

  // Whether a ring or a post has come since the holder's last look.
  bool rung() {
    const auto came = env_.rings() + env_.words().posts.load(std::memory_order_seq_cst);
    return came != env_.words().seen.load(std::memory_order_relaxed);
  }

  // The same, or whether work is left. Called by a thread that has just freed the role: if another
  // took it meanwhile the answer may be too new, and is then not needed.
  bool fresh() { return rung() || env_.sleep_state().work_left(); }

  // Called by the holder: works until `completion` is done or the deadline has passed (true), or
  // until it is time to sleep (false). Looks at least once.
  bool drive(Completion& completion, Time deadline) {
    watch_alone();
    for (;;) {
      Watch watch(env_, Watcher::kDriver);
      for (;;) {
        env_.checkpoint(Place::kDrive, 0);
        const int amount = look();
        if (done(completion) || env_.expired(deadline)) return true;
        if (amount > 0) break;  // watch from the start again
        if (!watch.again(env_.agent().busy()) && !listen()) return false;
      }
    }
  }

  // Called while another thread drives, which may be about to finish or to leave: watches for a
  // short time before sleeping.
  void stand_by(Completion& completion) {
    Watch watch(env_, Watcher::kBystander);
    while (watch.again(false)) {
      env_.checkpoint(Place::kBystand, 0);
      if (done(completion)) return;
      if (env_.words().role.load(std::memory_order_relaxed) == kFree) return;
    }
  }

  // Called by a thread that need not wait after all, or must not count on it. If disarm() or
  // defer() was called, the bell must be armed again, and if post() was called, the work must be
  // seen. Where another thread holds the role, that one arms and looks when it leaves.
  void settle() {
    clear_owed();
    if (!env_.armed() && env_.words().role.load(std::memory_order_seq_cst) == kFree) env_.arm();
    if (fresh()) env_.wake_background();
  }

  bool owed() { return env_.words().owed.load(std::memory_order_seq_cst) != 0; }

  // Called by a thread that arms the bell later, so the store need not be visible before that.
  void clear_owed() {
    if (owed()) env_.words().owed.store(0, std::memory_order_relaxed);
  }

  // Called by a holder whose own work is done or out of time: grants the role to another thread
  // that waits, or frees it.
  void leave() {
    env_.checkpoint(Place::kLeave, 0);
    // Other work may be in flight. Once no thread watches it, rings wake the background thread; but
    // if the work moves even now, the background thread takes over at once. And where a ring came
    // for work that an earlier look has seen already, one more look is cheaper than a wake-up.
    const bool moves = (listen() || rung()) && look() > 0;
    const Time due = env_.due();
    {
      Lock lock(env_.mutex);
      if (Node* next = env_.parked_after(nullptr); next != nullptr) {
        wake(*next, kGranted);
        return;
      }
      release();
    }
    if (moves || fresh() || due < sleep_until()) env_.wake_background();
  }

  // Called by a holder that goes to sleep: frees the role and parks. The role is not granted to
  // another waiter, which would grant it back in the same manner, for ever. False when `completion`
  // is done: then this thread still holds the role and is not parked.
  bool release_and_park(Node& node, Completion& completion) {
    Lock lock(env_.mutex);
    if (!await(completion)) return false;
    enlist(node);
    release();
    return true;
  }

  // Parks the thread. False, and not parked, if `completion` is done or the role is free to be
  // taken.
  bool park(Node& node, Completion& completion) {
    Lock lock(env_.mutex);
    if (env_.words().role.load(std::memory_order_seq_cst) == kFree) return false;
    if (!await(completion)) return false;
    enlist(node);
    return true;
  }

  // Tells complete() that a thread may sleep; false if `completion` is done already.
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

  // Ends parking. True when the role was granted to this thread while it was parked.
  bool withdraw(Node& node) {
    Lock lock(env_.mutex);
    env_.remove(node);
    return env_.state(node).exchange(kRunning, std::memory_order_seq_cst) == kGranted;
  }

  // Wakes a parked thread. The list keeps its node until the thread calls withdraw(), which waits
  // for the mutex: so the node is not destroyed while it is woken.
  void wake(Node& node, std::uint32_t state) RONDE_REQUIRES(env_.mutex) {
    env_.state(node).store(state, std::memory_order_seq_cst);
    env_.wake(node);
  }

  Env& env_;
};

}  // namespace ronde::runtime
