// SPDX-License-Identifier: Apache-2.0
// The toy agent, the other threads and the properties of the role protocol's model.
#include "test/support/role_model.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"

namespace ronde::test {

namespace {

using ToyRole = runtime::AgentRole<ModelEnv>;
using runtime::RoleWords;

// This checkpoint is in the background thread's own loop, outside the protocol.
constexpr Value kAsleep = 200;
// The checkpoints of the toy agent, which each thread calls from one place, and a leaver from one
// more.
constexpr Value kLooking = 100;
constexpr Value kLookingAtLeave = 150;
// Checkpoints of the posters.
constexpr Value kPosted = 220;
constexpr Value kCounted = 230;
constexpr Value kSent = 240;
constexpr Value kSubmitted = 245;

constexpr Interleaving::Promise kOwned{.owned = true, .last = std::nullopt};

bool polls(const RoleScenario& scenario) {
  return std::ranges::count(scenario.works, Source::kSilent) != 0;
}

bool defers(const RoleScenario& scenario) {
  return scenario.waiters_defer || !scenario.submissions.empty();
}

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
             atomic(world.sleep_until, polls() || defers() ? Part::kSleepUntil : Part::kPlain),
             atomic(world.owed, Part::kOwed)} {
  for (const auto& each : scenario.waiters) {
    nodes_.emplace_back(base::narrow<int>(nodes_.size()), each.work);
  }
}

bool ModelEnv::polls() const { return test::polls(scenario_); }

bool ModelEnv::defers() const { return test::defers(scenario_); }

ModelEnv::Time ModelEnv::rest() { return defers() && thread_.choose(2) == 1 ? kSoon : kNever; }

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
  return polls() && thread_.load(world_.polling) != 0 ? kSoon : kNever;
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

namespace {

struct Model {
  RoleScenario scenario;
  Mutant mutant;
  RoleWorld world;

  void waiter(ModelThread& thread, std::size_t i) const;
  void poster(ModelThread& thread, const std::vector<std::size_t>& works) const;
  void submitter(ModelThread& thread) const;
  [[nodiscard]] std::optional<std::string> wrong_when_quiet(const ModelView& view) const;
  // Whether the work may have to wait for the end of a short sleep, which never comes here.
  [[nodiscard]] bool needs_timer(std::size_t work) const {
    const auto deferred = [&](const RoleScenario::Submission& each) {
      return each.defers && base::narrow<std::size_t>(each.work) == work;
    };
    return !scenario.timer_helps && std::ranges::any_of(scenario.submissions, deferred);
  }
  [[nodiscard]] Source source_of(std::size_t waiter) const {
    return scenario.works[base::narrow<std::size_t>(scenario.waiters[waiter].work)];
  }
};

void Model::waiter(ModelThread& thread, std::size_t i) const {
  const auto& self = scenario.waiters[i];
  const auto work = base::narrow<std::size_t>(self.work);
  ModelEnv env(thread, world, scenario, base::narrow<int>(i), mutant);
  ToyRole role(env);
  const bool submits = source_of(i) == Source::kSilent || source_of(i) == Source::kCounter;
  if (scenario.waiters_defer) {
    env.submit(work, true);
  } else {
    if (i == 0) role.disarm();  // not all, for the sake of the number of states
    if (source_of(i) == Source::kPost) thread.store_later(world.data[work], 1);
    if (submits) thread.store_later(world.submitted[work], 1);
    if (submits || source_of(i) == Source::kPost) role.post();
  }
  ModelEnv::Completion completion{self.work};
  const bool done = role.wait(completion, self.deadline ? ModelEnv::kSoon : ModelEnv::kNever);
  thread.require(done || self.deadline, "a wait without a deadline came back without its work");
  thread.require(!done || thread.load(world.completion[work]) == RoleWords::kDone,
                 "a wait says done and its work is not");
}

void Model::poster(ModelThread& thread, const std::vector<std::size_t>& works) const {
  ModelEnv env(thread, world, scenario, -1, mutant);
  for (const std::size_t work : works) {
    switch (scenario.works[work]) {
      case Source::kRing:
        thread.store_later(world.data[work], 1);
        env.ring();
        break;
      case Source::kSilent:
        thread.wait_while(world.polling, 0, TimeOut::kNever);
        thread.store_later(world.data[work], 1);
        break;
      case Source::kEvent:
        // The epoll wakes for it as it does for the eventfd: one word for both.
        thread.store(world.readable, 1);
        thread.relaxed_exchange(world.event, 1);
        break;
      case Source::kCounter:
        env.count(work);
        break;
      case Source::kMessage:
        env.send(work);
        break;
      case Source::kPost:
      case Source::kNever:
        break;
    }
    thread.checkpoint(static_cast<Value>(kPosted + work));
  }
}

void Model::submitter(ModelThread& thread) const {
  for (std::size_t i = 0; i < scenario.submissions.size(); ++i) {
    thread.checkpoint(static_cast<Value>(kSubmitted + i));
    const RoleScenario::Submission& each = scenario.submissions[i];
    ModelEnv(thread, world, scenario, -1, mutant)
        .submit(base::narrow<std::size_t>(each.work), each.defers);
  }
}

std::optional<std::string> Model::wrong_when_quiet(const ModelView& view) const {
  const std::vector<Value>& words = view.words;
  for (std::size_t i = 0; i < scenario.waiters.size(); ++i) {
    // Thread 0 is the background thread; the waiters follow it.
    if (!view.finished[i + 1] && source_of(i) != Source::kNever) {
      return "waiter " + std::to_string(i) + " sleeps for ever";
    }
  }
  for (std::size_t k = 0; k < scenario.works.size(); ++k) {
    if (needs_timer(k)) continue;
    if (words[world.data[k]] != 0 && words[world.completion[k]] != RoleWords::kDone) {
      return "work " + std::to_string(k) + " is never looked at";
    }
  }
  const auto came = static_cast<Value>(words[world.rings] + words[world.posts]);
  if (mutant != Mutant::kNoRecheck && scenario.timer_helps && came != words[world.seen])
    return "everybody sleeps and a ring is unseen";
  if (words[world.role] != RoleWords::kFree) return "the role is held by nobody";
  if (words[world.armed] == 0) return "everybody sleeps and the doorbell is not armed";
  if (words[world.left] != 0) return "everybody sleeps and something is left over";
  return std::nullopt;
}

void add_words(Interleaving& model, const RoleScenario& scenario, RoleWorld& world) {
  const auto count = [&](Source source) {
    return static_cast<Value>(std::ranges::count(scenario.works, source));
  };
  const bool sleeps_shortly = polls(scenario) || defers(scenario);
  // Each waiter whose work is its own posts, and the background thread once for an event. The
  // thread that submits posts or rings.
  const auto own = [&](const RoleScenario::Waiter& waiter) {
    const Source source = scenario.works[base::narrow<std::size_t>(waiter.work)];
    return source == Source::kPost || source == Source::kSilent || source == Source::kCounter;
  };
  const auto submissions = [&](bool deferring) {
    return std::ranges::count_if(scenario.submissions, [&](const RoleScenario::Submission& each) {
      return each.defers == deferring &&
             scenario.works[base::narrow<std::size_t>(each.work)] == Source::kPost;
    });
  };
  // A counter rings at most as often as it moves.
  const auto rings = static_cast<Value>(count(Source::kRing) + submissions(false) +
                                        scenario.moves * count(Source::kCounter));
  const auto posts = static_cast<Value>(std::ranges::count_if(scenario.waiters, own) +
                                        submissions(true) + count(Source::kEvent));
  world.role = model.add_word("role", RoleWords::kFree);
  // A message may be told of twice.
  world.posts = model.add_word(
      "posts", 0,
      {.owned = false,
       .last = count(Source::kMessage) > 0 ? std::nullopt : std::optional<Value>(posts)});
  world.seen = model.add_word("seen", 0);
  world.sleep_until = model.add_word("sleep_until", ModelEnv::kNever,
                                     {.owned = !sleeps_shortly, .last = std::nullopt});
  // Where no thread defers it stays 0.
  world.owed = model.add_word(
      "owed", 0,
      {.owned = false, .last = defers(scenario) ? std::nullopt : std::optional<Value>(Value{0})});
  world.rings = model.add_word("rings", 0, {.owned = false, .last = rings});
  world.armed = model.add_word("armed", 0);
  world.event = model.add_word("eventfd", 0);
  world.mutex = model.add_word("mutex", 0);
  world.inside = model.add_word("inside", 0, kOwned);
  world.left = model.add_word("left", 0);
  world.polling = model.add_word("polling", 0);
  world.readable = model.add_word("readable", 0);
  world.watched = model.add_word("watched", 0);
  world.in_epoll = model.add_word("in_epoll", 0);
  world.asked = model.add_word("asked", 0, kOwned);
  world.wants = model.add_word("wants", 0);
  world.in_flight = model.add_word("in_flight", 0, kOwned);
  world.skip_look = model.add_word("skip_look", 0, kOwned);
  for (std::size_t i = 0; i < scenario.waiters.size(); ++i) {
    world.node.push_back(model.add_word("node" + std::to_string(i), RoleWords::kRunning, kOwned));
  }
  for (std::size_t k = 0; k < scenario.works.size(); ++k) {
    const std::string number = std::to_string(k);
    const Interleaving::Promise stays_done{.owned = false, .last = RoleWords::kDone};
    const Interleaving::Promise stays_set{.owned = false, .last = Value{1}};
    world.completion.push_back(
        model.add_word("completion" + number, RoleWords::kPending, stays_done));
    const bool counts =
        scenario.works[k] == Source::kCounter || scenario.works[k] == Source::kMessage;
    const Interleaving::Promise stays{
        .owned = false, .last = counts ? static_cast<Value>(scenario.moves) : Value{1}};
    world.data.push_back(model.add_word("data" + number, 0, stays));
    world.submitted.push_back(model.add_word("submitted" + number, 0, stays_set));
    world.taken.push_back(model.add_word("taken" + number, 0, kOwned));
  }
}

}  // namespace

Interleaving::Report explore_role(const RoleScenario& scenario, Mutant mutant,
                                  std::uint64_t limit) {
  Interleaving model;
  Model self{scenario, mutant, {}};
  add_words(model, scenario, self.world);
  model.add_thread(
      "background",
      [&self](ModelThread& thread) {
        ModelEnv env(thread, self.world, self.scenario, -1, self.mutant);
        ToyRole role(env);
        for (;;) {
          const ModelEnv::Time until = role.background_turn();
          thread.checkpoint(static_cast<Value>(kAsleep + until));
          env.sleep_background(until);
        }
      },
      true);
  for (std::size_t i = 0; i < scenario.waiters.size(); ++i) {
    model.add_thread("waiter" + std::to_string(i),
                     [&self, i](ModelThread& thread) { self.waiter(thread, i); });
  }
  if (!scenario.submissions.empty()) {
    model.add_thread("submitter", [&self](ModelThread& thread) { self.submitter(thread); });
  }
  std::vector<std::vector<std::size_t>> posters;
  for (std::size_t k = 0; k < scenario.works.size(); ++k) {
    if (scenario.works[k] == Source::kPost || scenario.works[k] == Source::kNever) continue;
    if (posters.empty() || !scenario.one_poster) posters.emplace_back();
    posters.back().push_back(k);
  }
  for (const std::vector<std::size_t>& works : posters) {
    model.add_thread("poster" + std::to_string(works.front()),
                     [&self, works](ModelThread& thread) { self.poster(thread, works); });
  }
  model.when_quiet([&self](const ModelView& view) { return self.wrong_when_quiet(view); });
  return model.explore(limit);
}

}  // namespace ronde::test
