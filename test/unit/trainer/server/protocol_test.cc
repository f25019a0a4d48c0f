// SPDX-License-Identifier: Apache-2.0
// Servers, workers and the chief in virtual time, by a seeded scheduler that delays, loses and
// doubles messages and kills tasks. Each push marks one element of its own, so that what was
// counted can be read off the variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {
namespace {

constexpr std::uint32_t kWorkers = 3;
constexpr std::uint64_t kSteps = 8;  // of a worker
constexpr std::size_t kElements = 128;

struct Plan {
  ModeOptions mode;
  std::uint32_t servers = 2;
  bool standby = true;
  bool kills_server = false;
  int kills = 0;  // of workers that come back
  double loss = 0.0;
  double twice = 0.0;
};

struct Simulation {
  struct Event {
    double time;
    std::uint64_t order;
    std::optional<Message> message;  // none: a tick of everybody
    bool operator<(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };
  // What one task does: for each step, pull all groups, then push all groups.
  struct Task {
    std::unique_ptr<WorkerState> state;
    Address self;
    std::uint64_t step = 0;
    enum class Phase { kPull, kPush, kBye, kDone } phase = Phase::kPull;
    bool asked = false;
    std::vector<std::uint64_t> versions;
    std::vector<bool> answered;
    std::vector<std::size_t> marks;             // element of the push under way, by group
    std::vector<std::set<std::size_t>> before;  // acknowledged when the pull began, by group
    bool alive = true;
    double back_at = 0.0;
  };

  Plan plan;
  std::mt19937_64 random;
  double now = 0.0;
  std::uint64_t order = 0;
  std::uint64_t incarnations = 0;
  std::priority_queue<Event> events;
  std::vector<std::unique_ptr<ServerState>> servers;
  std::vector<Task> tasks;
  std::vector<std::size_t> next_mark;
  std::vector<std::set<std::size_t>> acknowledged;  // by group
  std::vector<std::set<std::size_t>> dropped;
  std::vector<std::set<std::size_t>> sent;
  std::vector<std::set<std::size_t>> seen;  // what a pull that is over has shown
  std::size_t most_kept = 0;
  std::uint32_t stopped = kMostServers;  // this server
  double stopped_until = 0.0;
  std::string trouble;

  Simulation(const Plan& plan_of, std::uint64_t seed) : plan(plan_of), random(seed) {
    for (std::uint32_t i = 0; i < plan.servers; ++i) {
      ServerOptions options;
      options.index = i;
      options.servers = plan.servers;
      options.workers = kWorkers;
      options.standby = plan.standby;
      options.job = "job";
      options.start = 1;
      servers.push_back(std::make_unique<ServerState>(options));
    }
    next_mark.resize(plan.servers);
    acknowledged.resize(plan.servers);
    dropped.resize(plan.servers);
    sent.resize(plan.servers);
    seen.resize(plan.servers);
    tasks.resize(kWorkers + 1);
    for (std::uint32_t i = 0; i <= kWorkers; ++i) start(i);
    post_tick();
  }
  double uniform(double most) { return std::uniform_real_distribution(0.0, most)(random); }
  bool chance(double share) { return uniform(1.0) < share; }

  void start(std::uint32_t i) {
    Task& task = tasks[i];
    const bool chief = i == kWorkers;
    task = {};
    WorkerOptions options;
    options.self = {chief ? Role::kChief : Role::kWorker, chief ? 0 : i, ++incarnations};
    options.servers = plan.servers;
    options.standby = plan.standby;
    options.decides = chief;
    options.job = "job";
    task.self = options.self;
    task.state = std::make_unique<WorkerState>(options);
    task.versions.resize(plan.servers);
    task.answered.resize(plan.servers);
    task.marks.resize(plan.servers);
    task.before.resize(plan.servers);
  }
  void post_tick() { events.push({now + 0.1, ++order, {}}); }
  void post(Messages messages) {
    for (Message& one : messages) {
      if (chance(plan.loss)) continue;
      const int copies = chance(plan.twice) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        // Most arrive soon, some very late.
        const double delay = chance(0.05) ? uniform(3.0) : uniform(0.02);
        events.push({now + delay, ++order, one});
      }
    }
  }
  void deliver(const Message& message) {
    if (message.to.role == Role::kServer) {
      auto& server = servers.at(message.to.index);
      if (message.to.index == stopped && now < stopped_until) {
        events.push({stopped_until, ++order, message});
        return;
      }
      if (server) post(server->on_message(now, message));
      return;
    }
    for (Task& task : tasks) {
      if (task.alive && task.self == message.to) post(task.state->on_message(now, message));
    }
  }
  void fail(const std::string& text) {
    if (trouble.empty()) trouble = text + " at " + std::to_string(now);
  }

  // The chief creates what is missing, and does no more.
  void drive_chief(Task& task, Messages& out) {
    for (std::uint32_t group = 0; group < plan.servers; ++group) {
      (void)task.state->take_answer(group);
      if (task.answered[group] || task.state->is_under_way(group)) continue;
      VariableSpecs specs;
      specs.variables = {{"v", {kElements}}};
      specs.mode = plan.mode;
      Message message;
      message.kind = Kind::kCreate;
      message.group = group;
      message.text = specs.text();
      message.floats = Floats::of(std::vector<float>(kElements, 0.0F));
      task.state->request(now, message, out);
      task.answered[group] = true;
    }
  }
  void begin(Task& task, std::uint32_t group, Messages& out) {
    Message message;
    message.group = group;
    if (task.phase == Task::Phase::kPull) {
      message.kind = Kind::kPull;
      // In sync a push that was acknowledged may still wait for its round.
      task.before[group] = seen[group];
      if (plan.mode.mode != Mode::kSync) {
        task.before[group].insert(acknowledged[group].begin(), acknowledged[group].end());
      }
    } else if (task.phase == Task::Phase::kPush) {
      message.kind = Kind::kPush;
      message.version = task.versions[group];
      message.weight = 1.0;
      message.rate = 1.0;
      std::vector<float> gradient(kElements, 0.0F);
      task.marks[group] = next_mark[group]++;
      gradient.at(task.marks[group]) = -1.0F;
      sent[group].insert(task.marks[group]);
      message.floats = Floats::of(std::move(gradient));
    } else {
      message.kind = Kind::kBye;
    }
    task.state->request(now, message, out);
  }
  void take(Task& task, std::uint32_t group, const Message& answer) {
    if (answer.kind == Kind::kRefused) return fail("refused: " + answer.text);
    if (task.phase == Task::Phase::kPull) {
      task.versions[group] = answer.version;
      std::set<std::size_t> shown;
      for (std::size_t i = 0; i < kElements; ++i) {
        if (answer.floats.values[i] != 0.0F) shown.insert(i);
      }
      for (const std::size_t one : task.before[group]) {
        if (!shown.contains(one)) fail("a pull does not show what was there before");
      }
      for (const std::size_t one : shown) {
        if (!sent[group].contains(one)) fail("a pull shows what nobody has pushed");
      }
      seen[group].insert(shown.begin(), shown.end());
    } else if (task.phase == Task::Phase::kPush) {
      (answer.dropped ? dropped : acknowledged)[group].insert(task.marks[group]);
    }
  }
  void drive(Task& task, Messages& out) {
    if (task.phase == Task::Phase::kDone) return;
    if (!task.asked) {
      task.asked = true;
      task.answered.assign(plan.servers, false);
      for (std::uint32_t group = 0; group < plan.servers; ++group) begin(task, group, out);
    }
    bool all = true;
    for (std::uint32_t group = 0; group < plan.servers; ++group) {
      if (auto answer = task.state->take_answer(group)) {
        take(task, group, *answer);
        task.answered[group] = true;
      }
      all = all && task.answered[group];
    }
    if (!all) return;
    task.asked = false;
    using Phase = Task::Phase;
    if (task.phase == Phase::kBye) {
      task.phase = Phase::kDone;
    } else if (task.phase == Phase::kPull) {
      task.phase = Phase::kPush;
    } else {
      task.phase = ++task.step < kSteps ? Phase::kPull : Phase::kBye;
    }
  }
  void look_at_servers() {
    for (const auto& server : servers) {
      if (!server) continue;
      for (std::uint32_t group = 0; group < plan.servers; ++group) {
        const Shard* const shard = server->shard(group);
        if (shard == nullptr) continue;
        most_kept = std::max(most_kept, shard->kept());
        if (shard->most_ahead() > plan.mode.bound) fail("a worker was let further ahead than k");
      }
    }
  }
  bool done() const {
    return std::ranges::all_of(tasks, [](const Task& task) {
      return task.self.role == Role::kChief || task.phase == Task::Phase::kDone;
    });
  }
  void kill_some(int& kills, bool& server_killed) {
    if (kills > 0 && chance(0.01)) {
      Task& task = tasks[std::uniform_int_distribution<std::size_t>(0, kWorkers - 1)(random)];
      if (task.alive && task.phase != Task::Phase::kDone) {
        --kills;
        task.alive = false;
        task.back_at = now + uniform(12.0);
        if (chance(0.25)) {  // it never comes back, and the others must end without it
          task.phase = Task::Phase::kDone;
          task.back_at = 1e9;
        }
      }
    }
    // Once all variables are there: before, the chief would begin anew.
    const bool created =
        std::ranges::all_of(acknowledged, [](const auto& one) { return !one.empty(); });
    if (plan.kills_server && !server_killed && created && chance(0.02)) {
      server_killed = true;
      const auto which = std::uniform_int_distribution<std::uint32_t>(0, plan.servers - 1)(random);
      if (chance(0.5)) {
        servers[which].reset();
      } else {  // it is stopped, and wakes when it was taken over
        stopped = which;
        stopped_until = now + 8.0;
      }
    }
  }
  void run() {
    int kills = plan.kills;
    bool server_killed = false;
    // Those who were killed last are gone after a while, so that the last round ends.
    double end = 1e9;
    while (trouble.empty() && now < end) {
      if (end > 1e8 && done()) end = now + 15.0;
      if (now > 1000.0) return fail("the job does not end: " + state());
      const Event event = events.top();
      events.pop();
      now = event.time;
      if (event.message) {
        deliver(*event.message);
      } else {
        kill_some(kills, server_killed);
        for (const auto& server : servers) {
          const bool sleeps = server && server->options().index == stopped && now < stopped_until;
          if (server && !sleeps) post(server->on_tick(now));
        }
        for (std::uint32_t i = 0; i < tasks.size(); ++i) {
          if (!tasks[i].alive && now >= tasks[i].back_at) start(i);
          if (tasks[i].alive) post(tasks[i].state->on_tick(now));
        }
        post_tick();
      }
      for (Task& task : tasks) {
        if (!task.alive) continue;
        Messages out;
        task.self.role == Role::kChief ? drive_chief(task, out) : drive(task, out);
        post(std::move(out));
      }
      look_at_servers();
    }
  }
  // Who does what, for a failure.
  std::string state() {
    std::string text;
    for (const Task& task : tasks) {
      text += text_of(task.self) + (task.alive ? " in step " : " (dead) in step ") +
              std::to_string(task.step) + ", phase " +
              std::to_string(static_cast<int>(task.phase)) + ";";
      for (std::uint32_t group = 0; group < plan.servers; ++group) {
        text += task.state->is_under_way(group) ? " waits for group " + std::to_string(group) : "";
      }
      text += "\n";
    }
    for (std::uint32_t group = 0; group < plan.servers; ++group) {
      const Shard* const shard = home(group);
      text += "group " + std::to_string(group) + ": " +
              (shard == nullptr   ? "nobody has it"
               : shard->created() ? shard->counts()
                                  : "empty") +
              "\n";
    }
    return text;
  }
  // The variables of a group, where they are now.
  const Shard* home(std::uint32_t group) {
    for (const auto& server : servers) {
      const Shard* const shard = server && !server->deposed() ? server->shard(group) : nullptr;
      if (shard != nullptr && shard->primary()) return shard;
    }
    return nullptr;
  }
};

// What must hold of any run.
void check(const Plan& plan, std::uint64_t seed, std::map<std::string, std::uint64_t>* sums = {}) {
  SCOPED_TRACE(testing::Message() << text_of(plan.mode) << ", seed " << seed);
  Simulation run(plan, seed);
  run.run();
  ASSERT_EQ(run.trouble, "");
  // Each worker has at most a push, a pull and their entries and answers under way, twice when one
  // was killed.
  EXPECT_LE(run.most_kept, 16U * (kWorkers + 1));
  for (std::uint32_t group = 0; group < plan.servers; ++group) {
    const Shard* const shard = run.home(group);
    ASSERT_NE(shard, nullptr);
    ASSERT_TRUE(shard->created());
    auto& variables = const_cast<Variables&>(*shard->variables());
    const Floats values = variables.values({});
    std::uint64_t marked = 0;
    double sum = 0.0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const float value = values.values[i];
      sum += value;
      marked += value != 0.0F ? 1U : 0U;
      if (plan.mode.mode != Mode::kSync) {
        ASSERT_TRUE(value == 0.0F || value == 1.0F) << "counted more than once: " << value;
      }
      if (run.acknowledged[group].contains(i)) {
        ASSERT_NE(value, 0.0F) << "acknowledged and lost";
      }
      if (run.dropped[group].contains(i)) {
        ASSERT_EQ(value, 0.0F) << "dropped and counted";
      }
    }
    std::uint64_t counted = 0;
    for (const std::uint64_t one : shard->steps()) counted += one;
    EXPECT_EQ(counted, marked);  // global_step is the sum of the workers' steps
    EXPECT_NEAR(sum, static_cast<double>(variables.version()), 1e-3);  // each update moves by 1
    if (plan.mode.mode != Mode::kSync) {
      EXPECT_EQ(variables.version(), marked);
    } else {
      EXPECT_EQ(shard->staleness()[0], marked);  // no push of an earlier round counts
    }
    if (sums != nullptr) (*sums)["pushes"] += marked;
  }
}

std::uint64_t schedules(std::uint64_t few) {
  const char* const all = std::getenv("RONDE_SCHEDULES");
  return all == nullptr ? few : std::strtoull(all, nullptr, 10);
}

Plan plan_of(const std::string& mode) {
  Plan plan;
  plan.mode = mode_of(mode);
  plan.loss = 0.05;
  plan.twice = 0.05;
  return plan;
}

TEST(ServerProtocol, AsyncCountsEachPushOnce) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("async");
    plan.kills = 2;
    check(plan, seed);
  }
}

TEST(ServerProtocol, BoundedStalenessHolds) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("stale=" + std::to_string(1 + seed % 3));
    plan.kills = static_cast<int>(seed % 3);
    check(plan, seed);
  }
}

TEST(ServerProtocol, SyncRoundsAverage) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of("sync");
    plan.kills = static_cast<int>(seed % 3);
    plan.mode.backup_workers = seed % 4 == 3 ? 1 : 0;
    check(plan, seed);
  }
}

TEST(ServerProtocol, AServerThatDiesIsTakenOver) {
  for (std::uint64_t seed = 0; seed < schedules(250); ++seed) {
    Plan plan = plan_of(seed % 3 == 0 ? "async" : seed % 3 == 1 ? "sync" : "stale=2");
    plan.kills_server = true;
    plan.kills = static_cast<int>(seed % 2);
    plan.servers = seed % 2 == 0 ? 2 : 3;
    check(plan, seed);
  }
}

// Started again so soon that nobody has missed it: the standby has what it had.
TEST(ServerProtocol, AServerThatComesBackEmptyIsTakenOver) {
  Plan plan;
  plan.mode = mode_of("async");
  Simulation run(plan, 1);
  const auto created = [&run] {
    return std::ranges::all_of(run.acknowledged, [](const auto& one) { return !one.empty(); });
  };
  bool is_restarted = false;
  while (run.trouble.empty() && run.now < 200.0 && !run.done()) {
    const Simulation::Event event = run.events.top();
    run.events.pop();
    run.now = event.time;
    if (!is_restarted && created()) {
      is_restarted = true;
      ServerOptions options = run.servers[0]->options();
      ++options.start;
      run.servers[0] = std::make_unique<ServerState>(options);
    }
    if (event.message) {
      run.deliver(*event.message);
    } else {
      for (const auto& server : run.servers) run.post(server->on_tick(run.now));
      for (auto& task : run.tasks) run.post(task.state->on_tick(run.now));
      run.post_tick();
    }
    for (auto& task : run.tasks) {
      Messages out;
      task.self.role == Role::kChief ? run.drive_chief(task, out) : run.drive(task, out);
      run.post(std::move(out));
    }
  }
  EXPECT_EQ(run.trouble, "");
  ASSERT_TRUE(is_restarted && run.done()) << run.state();
  EXPECT_TRUE(run.servers[0]->deposed());
  const Shard* const shard = run.home(0);
  ASSERT_TRUE(shard != nullptr && shard->created());
  std::uint64_t counted = 0;
  for (const std::uint64_t one : shard->steps()) counted += one;
  EXPECT_EQ(counted, kWorkers * kSteps);
}

TEST(ServerProtocol, StaleZeroIsSync) {
  EXPECT_EQ(text_of(mode_of("stale=0")), "sync");
  EXPECT_EQ(text_of(mode_of("stale=3")), "stale=3");
  EXPECT_THROW((void)mode_of("stale="), TrainerError);
  EXPECT_THROW((void)mode_of("slow"), TrainerError);
}

// Two workers whose pushes have weights 1 and 3.
TEST(ServerProtocol, ARoundIsTheAverageBySamples) {
  VariableSpecs specs;
  specs.variables = {{"v", {2}}};
  Variables variables(specs, std::vector<float>{0.0F, 0.0F});
  Message one;
  one.weight = 1.0;
  one.floats = Floats::of({4.0F, 0.0F});
  Message three;
  three.weight = 3.0;
  three.floats = Floats::of({0.0F, 4.0F});
  const std::vector<const Message*> pushes{&one, &three};
  variables.update(pushes, 1.0);
  EXPECT_THAT(variables.values({}).values, testing::ElementsAre(-1.0F, -3.0F));
  EXPECT_EQ(variables.version(), 1U);
}

TEST(ServerProtocol, RowsThatComeTwiceAreSummedAndOthersStay) {
  VariableSpecs specs;
  specs.tables = {{.name = "t", .rows = 3, .width = 2, .scale = 0.0}};
  Variables variables(specs, {});
  Message push;
  push.ids = {0, 3, 2, 0, 2};
  push.floats = Floats::of({1.0F, 2.0F, 5.0F, 6.0F, 10.0F, 20.0F});
  ASSERT_TRUE(variables.fits(push.ids, push.floats.values.size()));
  const Message* const pushes = &push;
  variables.update({&pushes, 1}, 1.0);
  EXPECT_THAT(variables.values(std::vector<std::int64_t>{0, 3, 0, 1, 2}).values,
              testing::ElementsAre(-5.0F, -6.0F, 0.0F, 0.0F, -11.0F, -22.0F));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 1, 3}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 5, 1}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{1, 0}));
  EXPECT_FALSE(variables.fits(std::vector<std::int64_t>{0, 1, -1}));
}

TEST(ServerProtocol, ALostWorkersTaskRunsElsewhereAndItsResultCountsOnce) {
  CoordinatorState state(2, 5.0);
  const auto task = state.schedule("step");
  Message hello;
  hello.from = {Role::kWorker, 0, 7};
  ASSERT_THAT(state.on_message(0.0, hello), testing::SizeIs(1));
  hello.from = {Role::kWorker, 1, 8};
  EXPECT_THAT(state.on_message(5.5, hello), testing::IsEmpty());
  Messages given = state.on_tick(6.0);  // worker 0 is silent for 6 s
  if (given.empty()) given = state.on_tick(6.1);
  ASSERT_THAT(given, testing::SizeIs(1));
  EXPECT_EQ(given[0].to.index, 1U);
  EXPECT_EQ(state.retried(), 1U);
  Message result = hello;
  result.kind = Kind::kResult;
  result.sequence = task;
  result.text = "second";
  (void)state.on_message(6.2, result);
  result.from = {Role::kWorker, 0, 7};
  result.text = "first, late";
  (void)state.on_message(6.3, result);
  ASSERT_TRUE(state.is_done(task));
  EXPECT_EQ(state.take(task).text, "second");
  EXPECT_TRUE(state.all_done());
}

}  // namespace
}  // namespace ronde::trainer::server
