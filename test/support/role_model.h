// SPDX-License-Identifier: Apache-2.0
// The environment in which the model checker runs the role protocol (runtime/drive/agent_role.h),
// with a toy agent: every word, the doorbell, the mutex and the sleeping are steps of the model. A
// mutant is an environment that breaks one rule, to prove that the checker would see it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/drive/agent_role.h"
#include "runtime/drive/sleep_state.h"
#include "test/support/interleaving.h"

namespace ronde::test {

enum class Mutant {
  kNone,
  kArmAfterRecheck,   // the doorbell is armed only after the leaver has looked again
  kArmBeforeFree,     // the doorbell is armed while the role is still held
  kRelaxedLeave,      // arm and role = free are not seq_cst
  kRelaxedRing,       // the poster's two operations are not seq_cst
  kNoRecheck,         // the leaver does not look again
  kExpiredKeepsRole,  // a granted waiter whose deadline has passed returns without leaving
  kForgetsTimers,   // the leaver does not compare the agent's next look with the background's sleep
  kNotAwaited,      // a sleeper does not publish that it sleeps
  kAwaitedBlindly,  // a sleeper publishes that it sleeps without checking whether it is done
  kTornTake,        // the role is taken by a load and a store
  kLateSleepUntil,  // the background publishes its sleep's end after it has failed to take the role
  kQuietEvent,      // the background thread handles an event and does not post
  kNoSecondLook,    // a thread that asks for rings does not look once more
  kAskAfterLook,    // a thread looks once more before the peers can see that it asks for rings
  kRelaxedAsk,      // asking for rings is not seq_cst
  kRelaxedCount,    // the peer's two operations are not seq_cst
  kUnheardSleep,    // the background thread sleeps without asking for rings
  kUnheardLeave,    // a leaver does not ask for rings
  kStaysDeaf,       // a thread that disarmed the bell and finds its work done leaves it so
  kLeaverForgets,   // a leaver's last look does something, and the leaver wakes no thread to go on
  kForgottenRing,   // a later submission does not pay the ring that an earlier one owes
  kNoTimer,         // the background thread publishes a short sleep and sleeps until it is woken
  kForgetsToHelp,   // a thread disarms the bell, and neither looks nor waits
  kBlindDefer,      // a thread defers its ring however long the background thread sleeps
  kOwedFirst,       // the ring is owed before the bell is disarmed
  kLateDisarm,      // the bell is disarmed after the background thread's sleep has been read
  kStaysMarked,     // the background thread leaves `watched` set when the epoll has told
  kMarksLate,       // a descriptor is handed over before `watched` is set
  kTakesBackMarked,  // a descriptor is taken back and `watched` left set
  kForgetsLeft,      // the leaver does not look whether work is left
};

enum class Source {
  kRing,     // another process lays data and rings
  kPost,     // the waiter itself lays data and posts (no ring)
  kSilent,   // once the agent has seen the submission, data arrive without a ring: it must poll
  kCounter,  // once the agent has seen the submission, a peer moves a counter (`moves` times) and
             // rings if it is asked to
  kEvent,    // another process makes a watched descriptor readable; on_event() takes the data
  kMessage,  // another host sends (`moves` times); a look takes one message. The descriptor wakes
             // only while it is watched, once
  kNever,
};

struct RoleScenario {
  std::string name;
  std::vector<Source> works;
  struct Waiter {
    int work;
    bool deadline;
  };
  std::vector<Waiter> waiters;
  // A waiter whose work is its own does not promise to wait: it defers its ring.
  bool waiters_defer = false;
  // What one more thread submits, one after the other, without waiting for any of it. The data of a
  // work are laid by that thread if its source is kPost, and by a peer that rings if it is kRing.
  struct Submission {
    int work;
    bool defers;
    bool helps = false;  // instead: disarms, rings and looks by itself
  };
  std::vector<Submission> submissions;
  // Without it the end of the background thread's short sleep rescues no thread.
  bool timer_helps = true;
  bool one_at_a_time = false;  // the agent stops after one work, and work is left then
  // With true a thread may watch before it sleeps, and `seen` becomes visible late. With false it
  // sleeps when there is nothing to do, which keeps worlds of two waiters small enough.
  bool watches = true;
  int moves = 2;
  // Messages may come at any time: a holder asks for rings even if nothing is in flight.
  bool always_listens = false;
  // One thread lays the data of all the works and rings for each, one after the other.
  bool one_poster = false;

  // Whether the agent must be polled, and whether the background thread may sleep shortly.
  [[nodiscard]] bool polls() const {
    return std::find(works.begin(), works.end(), Source::kSilent) != works.end();
  }
  [[nodiscard]] bool defers() const { return waiters_defer || !submissions.empty(); }
};

// GoogleTest prints a scenario by its name.
inline void PrintTo(const RoleScenario& scenario, std::ostream* out) { *out << scenario.name; }

// The numbers of the model's words.
struct RoleWorld {
  Value role, posts, seen, sleep_until, owed, rings, armed, event, mutex, inside, left, polling,
      readable, watched, in_epoll;
  Value asked, wants, in_flight;  // of the counters: the holder's note, the peers' word, how many
  Value skip_look;                // for kNoSecondLook
  std::vector<Value> node;        // by waiter
  std::vector<Value> completion, data, submitted, taken;  // by work
};

class ModelAtomic : private runtime::RoleWords {
 public:
  enum class Part {
    kOther,
    kRole,
    kPosts,
    kSleepUntil,
    kCompletion,
    kNode,
    kOwed,
    kPlain,
    kLeft,
    kWatched,
    kAbsent,  // 0 for ever in this scenario
  };

  ModelAtomic(ModelThread& thread, Value word, Value armed, Mutant mutant, Part part)
      : thread_(&thread), word_(word), armed_(armed), mutant_(mutant), part_(part) {}

  std::uint32_t load(std::memory_order order) {
    // The leaver's load is seq_cst, the holder's own is not.
    if (part_ == Part::kLeft && order == std::memory_order_seq_cst) {
      if (mutant_ == Mutant::kArmAfterRecheck) thread_->store(armed_, 1);
      if (mutant_ == Mutant::kNoRecheck || mutant_ == Mutant::kForgetsLeft) return 0;
    }
    if (part_ == Part::kAbsent) return 0;
    if (part_ == Part::kSleepUntil && mutant_ == Mutant::kForgetsTimers) return 0;
    if (part_ == Part::kPosts && mutant_ == Mutant::kNoRecheck) return 0;
    if (part_ == Part::kOwed && mutant_ == Mutant::kForgottenRing) return 0;
    return thread_->load(word_);
  }
  void store(std::uint32_t value, std::memory_order order) {
    if (part_ == Part::kWatched && mutant_ == Mutant::kStaysMarked) return;
    if (part_ == Part::kSleepUntil && mutant_ == Mutant::kLateSleepUntil && value != 0) return;
    if (part_ == Part::kRole && mutant_ == Mutant::kArmBeforeFree) thread_->store(armed_, 1);
    if (part_ == Part::kOwed && mutant_ == Mutant::kOwedFirst && value != 0) {
      thread_->store(word_, 1);
      return thread_->store(armed_, 0);
    }
    const bool weak = part_ == Part::kRole && mutant_ == Mutant::kRelaxedLeave;
    // The thread of a node parks it under the mutex.
    if (part_ == Part::kPlain || (part_ == Part::kNode && value == kParked)) {
      thread_->put(word_, static_cast<Value>(value));
    } else if (order == std::memory_order_seq_cst && !weak) {
      thread_->store(word_, static_cast<Value>(value));
    } else {
      thread_->store_later(word_, static_cast<Value>(value));
    }
  }
  std::uint32_t exchange(std::uint32_t value, std::memory_order) {
    if (part_ == Part::kAbsent) return 0;
    // For the first mutant hand_over() stores it.
    if (part_ == Part::kWatched &&
        mutant_ == (value != 0 ? Mutant::kMarksLate : Mutant::kTakesBackMarked)) {
      return thread_->load(word_);
    }
    return thread_->exchange(word_, static_cast<Value>(value));
  }
  std::uint32_t fetch_add(std::uint32_t value, std::memory_order) {
    return thread_->add(word_, static_cast<Value>(value));
  }
  bool compare_exchange_strong(std::uint32_t& expected, std::uint32_t value, std::memory_order) {
    if (part_ == Part::kRole && mutant_ == Mutant::kTornTake) {
      if (const Value now = thread_->load(word_); now != expected) return false;
      thread_->store(word_, static_cast<Value>(value));
      return true;
    }
    if (part_ == Part::kCompletion && mutant_ == Mutant::kNotAwaited) return true;
    if (part_ == Part::kCompletion && mutant_ == Mutant::kAwaitedBlindly) {
      thread_->store(word_, static_cast<Value>(value));
      return true;
    }
    auto old = static_cast<Value>(expected);
    const bool same = thread_->compare_exchange(word_, old, static_cast<Value>(value));
    expected = old;
    return same;
  }

 private:
  ModelThread* thread_;
  Value word_;
  Value armed_;  // for kArmBeforeFree
  Mutant mutant_;
  Part part_;
};

class ModelEnv;

// The words of the sleep state, as a thread of the model sees them.
class ModelSleepWords {
 public:
  static constexpr std::size_t kSlots = 1;
  explicit ModelSleepWords(ModelEnv& env) : env_(env) {}
  bool asked();
  void set_asked(bool wanted);
  ModelAtomic left();
  ModelAtomic watched(std::size_t);
  static std::size_t find(int) { return 0; }
  static std::size_t slot_of(int) { return 0; }
  base::Status hand_over(std::size_t);
  void take_back(std::size_t);

 private:
  ModelEnv& env_;
};
using ModelSleepState = runtime::SleepStateOn<ModelSleepWords>;

class ModelEnv : private runtime::RoleWords {
 public:
  using Time = std::uint32_t;
  static constexpr Time kSoon = 0;
  static constexpr Time kNever = 1;

  struct Completion {
    int work;
  };
  struct Node {
    Node(ModelEnv& env, Completion&) : waiter(env.waiter_) {}
    Node(int number, int target) : waiter(number), work(target) {}
    [[nodiscard]] bool waits_for(const Completion& completion) const {
      return work == completion.work;
    }
    int waiter;
    int work = -1;
  };
  // The scheduler chooses whether a thread goes on watching.
  struct Watch {
    Watch(ModelEnv& its_env, Watcher) : env(its_env) {}
    bool again(bool) { return env.scenario_.watches && env.thread_.choose(2) == 1; }
    ModelEnv& env;
  };
  struct Mutex {};
  class Lock {
   public:
    explicit Lock(ModelEnv* env) : env_(env) { env_->thread_.lock(env_->world_.mutex); }
    // The end of a replay unwinds through this destructor, which is no step of the protocol then.
    ~Lock() noexcept(false) {
      if (std::uncaught_exceptions() == 0) env_->thread_.unlock(env_->world_.mutex);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    ModelEnv* env_;
  };
  struct Words {
    ModelAtomic role, posts, seen, sleep_until, owed;
  };

  ModelEnv(ModelThread& thread, const RoleWorld& world, const RoleScenario& scenario, int waiter,
           Mutant mutant);

  Words& words() { return words_; }
  ModelAtomic state(Node& node) {
    return atomic(world_.node[static_cast<std::size_t>(node.waiter)], Part::kNode);
  }
  ModelAtomic word(Completion& completion) {
    return atomic(world_.completion[static_cast<std::size_t>(completion.work)], Part::kCompletion);
  }
  std::uint32_t rings() { return mutant_ == Mutant::kNoRecheck ? 0 : thread_.load(world_.rings); }
  void arm();
  void disarm();
  bool armed() { return mutant_ == Mutant::kStaysDeaf || thread_.load(world_.armed) != 0; }
  void wake_background();
  ModelEnv& agent() { return *this; }
  ModelSleepState& sleep_state() { return sleep_state_; }
  int do_work(ModelSleepState& sleep);
  bool busy();
  bool listens();
  void want_rings(bool wanted);
  Time due();
  // The scheduler chooses whether the background thread sleeps for a short time only.
  Time rest();
  [[nodiscard]] bool counts() const;
  [[nodiscard]] bool messages() const;
  bool expired(Time deadline) { return deadline != kNever && thread_.choose(2) == 1; }
  void sleep(Node& node, Time deadline);
  void wake(Node&) {}
  void enlist(Node&) {}
  void remove(Node& node);
  Node* parked_after(const Node* previous);
  void checkpoint(Place place, int number) {
    place_ = place;
    thread_.checkpoint(static_cast<Value>(static_cast<int>(place) * 4 + number));
  }

  // The acts of the other threads.
  void ring();
  void count(std::size_t work);
  void send(std::size_t work);
  void sleep_background(Time until);
  // Submits a work of this process: its data, where they are not a peer's, with or without a ring.
  void submit(std::size_t work, bool deferring);
  // The same for a thread that looks once by itself and does not wait.
  void submit_and_help(std::size_t work);

  ModelEnv* mutex = this;  // the argument of Lock's constructor

 private:
  friend ModelSleepWords;
  using Part = ModelAtomic::Part;
  int look_at(std::size_t work);
  [[nodiscard]] std::size_t work_of(Source source) const;
  [[nodiscard]] bool unheard() const;
  void tell_epoll();
  ModelAtomic atomic(Value word, Part part = Part::kOther) {
    return {thread_, word, world_.armed, mutant_, part};
  }

  ModelThread& thread_;
  const RoleWorld& world_;
  const RoleScenario& scenario_;
  int waiter_;
  Mutant mutant_;
  Words words_;
  ModelSleepState sleep_state_{*this};
  std::vector<Node> nodes_;
  bool timed_out_ = false;
  bool in_defer_ = false;
  Place place_ = Place::kWait;  // follows from the last checkpoint
};

// Explores the model of `scenario`: background thread, waiters, posters.
Interleaving::Report explore_role(const RoleScenario& scenario, Mutant mutant, std::uint64_t limit);

}  // namespace ronde::test
