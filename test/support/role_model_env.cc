// SPDX-License-Identifier: Apache-2.0
// The environment of the role protocol's model: the words, the toy agent, and what the other
// threads do to it.
#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "test/support/role_model.h"

namespace ronde::test {

namespace {

using ToyRole = runtime::AgentRole<ModelEnv>;

// The checkpoints of the toy agent, which each thread calls from one place, and a leaver from one
// more.
constexpr Value kLooking = 100;
constexpr Value kLookingAtLeave = 150;
// Checkpoints of those who move counters and send.
constexpr Value kCounted = 230;
constexpr Value kSent = 240;

}  // namespace

ModelEnv::ModelEnv(ModelThread& thread, const RoleWorld& world, const RoleScenario& scenario,
                   int waiter, Mutant mutant)
    : thread_(thread),
      world_(world),
      scenario_(scenario),
      waiter_(waiter),
      mutant_(mutant),
      words_{atomic(world.role, Part::kRole), atomic(world.posts, Part::kPosts),
             atomic(world.seen, scenario.watches ? Part::kOther : Part::kPlain),
             atomic(world.sleep_until,
                    scenario.polls() || scenario.defers() ? Part::kSleepUntil : Part::kPlain),
             atomic(world.owed, Part::kOwed)} {
  for (const auto& each : scenario.waiters) {
    nodes_.emplace_back(base::narrow<int>(nodes_.size()), each.work);
  }
}

ModelEnv::Time ModelEnv::rest() {
  return scenario_.defers() && thread_.choose(2) == 1 ? kSoon : kNever;
}

void ModelEnv::arm() {
  if (mutant_ == Mutant::kArmAfterRecheck || mutant_ == Mutant::kArmBeforeFree) return;
  if (mutant_ == Mutant::kRelaxedLeave) {
    thread_.store_later(world_.armed, 1);
  } else {
    thread_.store(world_.armed, 1);
  }
}

void ModelEnv::disarm() {
  if (in_defer_ && (mutant_ == Mutant::kOwedFirst || mutant_ == Mutant::kLateDisarm)) return;
  if (mutant_ == Mutant::kStaysDeaf || thread_.load(world_.armed) != 0) {
    thread_.store(world_.armed, 0);
  }
}

void ModelEnv::wake_background() {
  thread_.relaxed_exchange(world_.event, 1);  // a system call is no fence
}

ModelEnv::Time ModelEnv::due() {
  return scenario_.polls() && thread_.load(world_.polling) != 0 ? kSoon : kNever;
}

void ModelEnv::sleep(Node& node, Time deadline) {
  const Value word = world_.node[base::narrow<std::size_t>(node.waiter)];
  timed_out_ =
      !thread_.wait_while(word, kParked, deadline == kNever ? TimeOut::kNever : TimeOut::kMay);
}

void ModelEnv::remove(Node& node) {
  if (mutant_ == Mutant::kExpiredKeepsRole && timed_out_) {
    thread_.store(world_.node[base::narrow<std::size_t>(node.waiter)], kRunning);
  }
}

ModelEnv::Node* ModelEnv::parked_after(const Node* previous) {
  const int first = previous == nullptr ? 0 : previous->waiter + 1;
  for (std::size_t i = base::narrow<std::size_t>(first); i < nodes_.size(); ++i) {
    if (thread_.load(world_.node[i]) == kParked) return &nodes_[i];
  }
  return nullptr;
}

bool ModelEnv::counts() const { return std::ranges::count(scenario_.works, Source::kCounter) != 0; }

bool ModelEnv::messages() const { return work_of(Source::kMessage) != scenario_.works.size(); }

std::size_t ModelEnv::work_of(Source source) const {
  return base::narrow<std::size_t>(std::ranges::find(scenario_.works, source) -
                                   scenario_.works.begin());
}

bool ModelEnv::unheard() const {
  return (mutant_ == Mutant::kUnheardLeave && place_ == Place::kLeave) ||
         (mutant_ == Mutant::kUnheardSleep && place_ == Place::kBackground);
}

bool ModelEnv::busy() { return counts() && !unheard() && thread_.load(world_.in_flight) != 0; }

bool ModelEnv::listens() {
  return busy() || (scenario_.always_listens && counts()) || (messages() && !unheard());
}

void ModelEnv::want_rings(bool wanted) {
  if (!counts()) return;
  if (!wanted) return thread_.store_later(world_.wants, 0);
  if (mutant_ == Mutant::kNoSecondLook) thread_.put(world_.skip_look, 1);
  if (mutant_ == Mutant::kAskAfterLook) return;
  if (mutant_ == Mutant::kRelaxedAsk) return thread_.store_later(world_.wants, 1);
  thread_.store(world_.wants, 1);
}

// ---- the sleep state's words ----

bool ModelSleepWords::asked() {
  return (env_.counts() || env_.messages()) && env_.thread_.load(env_.world_.asked) != 0;
}

void ModelSleepWords::set_asked(bool wanted) {
  env_.thread_.put(env_.world_.asked, wanted ? 1 : 0);
}

ModelAtomic ModelSleepWords::left() {
  using Part = ModelAtomic::Part;
  const bool absent = !env_.scenario_.one_at_a_time && env_.mutant_ != Mutant::kArmAfterRecheck;
  return env_.atomic(env_.world_.left, absent ? Part::kAbsent : Part::kLeft);
}

ModelAtomic ModelSleepWords::watched(std::size_t) {
  using Part = ModelAtomic::Part;
  return env_.atomic(env_.world_.watched, env_.messages() ? Part::kWatched : Part::kAbsent);
}

// The epoll tells at once of a descriptor that is readable.
base::Status ModelSleepWords::hand_over(std::size_t) {
  const std::size_t work = env_.work_of(Source::kMessage);
  env_.thread_.exchange(env_.world_.in_epoll, 1);
  if (env_.thread_.load(env_.world_.data[work]) > env_.thread_.load(env_.world_.taken[work])) {
    env_.tell_epoll();
  }
  if (env_.mutant_ == Mutant::kMarksLate) env_.thread_.exchange(env_.world_.watched, 1);
  return {};
}

void ModelSleepWords::take_back(std::size_t) { env_.thread_.exchange(env_.world_.in_epoll, 0); }

// Something has come: the epoll, if it has the descriptor, wakes the background thread, once.
void ModelEnv::tell_epoll() {
  if (thread_.exchange(world_.in_epoll, 0) == 0) return;
  thread_.relaxed_exchange(world_.readable, 1);
  thread_.relaxed_exchange(world_.event, 1);
}

// ---- the agent ----

// Steps one work: returns 0 if it waits, 1 if it went on, 2 if it ended.
int ModelEnv::look_at(std::size_t k) {
  const Source source = scenario_.works[k];
  const Value taken = thread_.load(world_.taken[k]);
  const auto last = static_cast<Value>(source == Source::kCounter ? scenario_.moves + 1 : 2);
  if (source == Source::kMessage) {
    if (thread_.load(world_.data[k]) <= taken) return 0;
    thread_.put(world_.taken[k], static_cast<Value>(taken + 1));
    return taken + 1 == scenario_.moves ? 2 : 1;
  }
  if (source == Source::kNever || taken == last) return 0;
  if ((source == Source::kSilent || source == Source::kCounter) && taken == 0) {
    if (thread_.load(world_.submitted[k]) == 0) return 0;
    thread_.put(world_.taken[k], 1);
    if (source == Source::kSilent) thread_.put(world_.polling, 1);
    if (source == Source::kCounter) {
      thread_.put(world_.in_flight, static_cast<Value>(thread_.load(world_.in_flight) + 1));
    }
    return 1;
  }
  if (source == Source::kCounter) {
    if (thread_.load(world_.data[k]) < taken) return 0;
    thread_.put(world_.taken[k], static_cast<Value>(taken + 1));
    if (taken + 1 < last) return 1;
    thread_.put(world_.in_flight, static_cast<Value>(thread_.load(world_.in_flight) - 1));
    return 2;
  }
  if (thread_.load(world_.data[k]) == 0) return 0;
  thread_.put(world_.taken[k], last);
  if (source == Source::kSilent) thread_.put(world_.polling, 0);
  return 2;
}

int ModelEnv::do_work(ModelSleepState& sleep) {
  thread_.require(thread_.relaxed_exchange(world_.inside, 1) == 0, "two threads drive the agent");
  const Value places = place_ == Place::kLeave ? kLookingAtLeave : kLooking;
  int amount = 0;
  if (mutant_ == Mutant::kNoSecondLook && thread_.load(world_.skip_look) != 0) {
    thread_.put(world_.skip_look, 0);
    thread_.relaxed_exchange(world_.inside, 0);
    return 0;
  }
  bool left_over = false;
  for (std::size_t k = 0; k < scenario_.works.size(); ++k) {
    thread_.checkpoint(
        static_cast<Value>(places + 4 * k + (amount > 0 ? 2U : 0U) + (left_over ? 1U : 0U)));
    if (scenario_.one_at_a_time && amount > 0) {
      const bool ended = thread_.load(world_.taken[k]) == 2;
      left_over = left_over || (!ended && thread_.load(world_.data[k]) != 0);
      continue;
    }
    const int went = look_at(k);
    if (went == 2) {
      Completion completion{base::narrow<int>(k)};
      ToyRole(*this).complete(completion);
    }
    if (went > 0) amount = 1;
  }
  if (messages()) sleep.watch(0).ignore();
  sleep.note_left(left_over);
  thread_.checkpoint(
      static_cast<Value>(places + 4 * scenario_.works.size() + (amount > 0 ? 1U : 0U)));
  if (mutant_ == Mutant::kAskAfterLook && sleep.asked()) thread_.store(world_.wants, 1);
  if (mutant_ == Mutant::kLeaverForgets && place_ == Place::kLeave && amount > 0) {
    want_rings(false);
    sleep.ask(false);
    amount = 0;
  }
  thread_.relaxed_exchange(world_.inside, 0);
  return amount;
}

void ModelEnv::ring() {
  if (mutant_ == Mutant::kRelaxedRing) {
    thread_.add_later(world_.rings, 1);
    if (thread_.load(world_.armed) == 0) return;
    if (thread_.relaxed_exchange(world_.armed, 0) == 1) thread_.relaxed_exchange(world_.event, 1);
    return;
  }
  thread_.add(world_.rings, 1);
  if (thread_.load(world_.armed) == 0) return;
  if (thread_.exchange(world_.armed, 0) == 1) thread_.relaxed_exchange(world_.event, 1);
}

// A peer moves its counter: post() of collectives/in_host/slots.h.
void ModelEnv::count(std::size_t work) {
  for (Value value = 1; value <= scenario_.moves; ++value) {
    if (mutant_ == Mutant::kRelaxedCount) {
      thread_.store_later(world_.data[work], value);
    } else {
      thread_.store(world_.data[work], value);
    }
    if (thread_.load(world_.wants) != 0) ring();
    thread_.checkpoint(static_cast<Value>(kCounted + 2 * work + value));
  }
}

void ModelEnv::send(std::size_t work) {
  for (Value value = 1; value <= scenario_.moves; ++value) {
    thread_.store(world_.data[work], value);
    tell_epoll();
    thread_.checkpoint(static_cast<Value>(kSent + value));
  }
}

void ModelEnv::sleep_background(Time until) {
  if (mutant_ == Mutant::kLateSleepUntil) {
    thread_.store(world_.sleep_until, static_cast<Value>(until));
  }
  const bool limited = until != kNever && mutant_ != Mutant::kNoTimer;
  const TimeOut limit = scenario_.timer_helps ? TimeOut::kWill : TimeOut::kMay;
  thread_.wait_while(world_.event, 0, limited ? limit : TimeOut::kNever);
  thread_.relaxed_exchange(world_.event, 0);
  const std::size_t event = work_of(Source::kEvent);
  const bool events = event != scenario_.works.size();
  if ((!events && !messages()) || thread_.relaxed_exchange(world_.readable, 0) == 0) return;
  if (events) thread_.store_later(world_.data[event], 1);
  if (messages()) sleep_state_.on_event(0);
  if (mutant_ != Mutant::kQuietEvent) ToyRole(*this).post();
}

// As Engine::begin_message() does it.
void ModelEnv::submit_and_help(std::size_t work) {
  ToyRole role(*this);
  role.disarm();
  if (scenario_.works[work] == Source::kPost) {
    thread_.store_later(world_.data[work], 1);
    ring();
  }
  if (mutant_ != Mutant::kForgetsToHelp) role.help();
}

// As Engine::submit() does it.
void ModelEnv::submit(std::size_t work, bool deferring) {
  ToyRole role(*this);
  in_defer_ = true;
  if (deferring) role.defer();
  in_defer_ = false;
  if (scenario_.works[work] == Source::kPost) {
    thread_.store_later(world_.data[work], 1);
    if (deferring) {
      role.post();
    } else {
      ring();
    }
  }
  if (!deferring) return role.pay();
  if (mutant_ != Mutant::kBlindDefer) role.owe(kSoon);
  if (mutant_ == Mutant::kLateDisarm) thread_.store(world_.armed, 0);
}

}  // namespace ronde::test
