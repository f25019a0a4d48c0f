// SPDX-License-Identifier: Apache-2.0
// The threads and the properties of the role protocol's model.
#include "test/support/role_model.h"

#include <algorithm>

#include "base/numbers.h"

namespace ronde::test {

namespace {

using ToyRole = runtime::AgentRole<ModelEnv>;
using runtime::RoleWords;

// This checkpoint is in the background thread's own loop, outside the protocol.
constexpr Value kAsleep = 200;
// Checkpoints of the posters.
constexpr Value kPosted = 220;
constexpr Value kSubmitted = 245;

constexpr Interleaving::Promise kOwned{.owned = true, .last = std::nullopt};

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
    ModelEnv env(thread, world, scenario, -1, mutant);
    const auto work = base::narrow<std::size_t>(each.work);
    each.helps ? env.submit_and_help(work) : env.submit(work, each.defers);
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
  const bool sleeps_shortly = scenario.polls() || scenario.defers();
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
      {.owned = false, .last = scenario.defers() ? std::nullopt : std::optional<Value>(Value{0})});
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
