// SPDX-License-Identifier: Apache-2.0
// Servers, workers and the chief in virtual time, by a seeded scheduler that delays, loses and
// doubles messages and kills tasks. Each push marks one element of its own, so that what was
// counted can be read off the variables.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/own_time.h"
#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"
#include "test/unit/trainer/server/simulation_plan.h"

namespace ronde::trainer::server {

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
    std::vector<bool> late;                     // by group: the last push was dropped
    bool late_ones = false;                     // pulls those now
    bool alive = true;
    double asleep_until = 0.0;
    double back_at = 0.0;
  };

  Plan plan;
  std::mt19937_64 random;
  double now = 0.0;
  std::uint64_t order = 0;
  std::priority_queue<Event> events;
  std::vector<std::unique_ptr<ServerState>> servers;
  std::vector<Task> tasks;
  std::deque<OwnTime> server_times;  // by index, as those of the tasks
  std::deque<OwnTime> task_times;
  std::vector<std::size_t> next_mark;
  std::vector<std::set<std::size_t>> acknowledged;  // by group
  std::vector<std::set<std::size_t>> dropped;
  std::vector<std::set<std::size_t>> sent;
  std::vector<std::set<std::size_t>> seen;  // what a pull that is over has shown
  std::size_t most_kept = 0;
  std::size_t lives_lost = 0;            // of workers
  std::size_t blows = 0;                 // kills and pauses
  std::uint32_t stopped = kMostServers;  // this server
  double stopped_until = 0.0;
  std::uint32_t server_back = kMostServers;  // this one is started again
  double server_back_at = 0.0;
  std::string trouble;

  Simulation(const Plan& plan_of, std::uint64_t seed) : plan(plan_of), random(seed) {
    for (std::uint32_t i = 0; i < plan.servers; ++i) {
      ServerOptions options;
      options.index = i;
      options.servers = plan.servers;
      options.workers = kWorkers;
      options.standby = plan.standby;
      options.has_chief = true;
      options.job = "job";
      options.start = 1;
      options.start_timeout = 10.0;  // before the run ends
      servers.push_back(std::make_unique<ServerState>(options));
    }
    next_mark.resize(plan.servers);
    acknowledged.resize(plan.servers);
    dropped.resize(plan.servers);
    sent.resize(plan.servers);
    seen.resize(plan.servers);
    tasks.resize(kWorkers + 1);
    for (std::uint32_t i = 0; i <= kWorkers; ++i) start(i);
    const auto clock = [this] { return now; };
    for (std::uint32_t i = 0; i < plan.servers; ++i) server_times.emplace_back(clock);
    for (std::uint32_t i = 0; i <= kWorkers; ++i) task_times.emplace_back(clock);
    post_tick();
  }
  double time_of(std::uint32_t server) { return server_times.at(server).listened(); }
  double time_of(const Task& task) {
    return task_times.at(static_cast<std::size_t>(&task - tasks.data())).listened();
  }
  double uniform(double most) { return std::uniform_real_distribution(0.0, most)(random); }
  bool chance(double share) { return uniform(1.0) < share; }

  void start(std::uint32_t i) {
    Task& task = tasks[i];
    const bool chief = i == kWorkers;
    task = {};
    WorkerOptions options;
    options.self = {chief ? Role::kChief : Role::kWorker, chief ? 0 : i, random() | 1U};
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
    task.late.resize(plan.servers);
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
  // What orders the events stays in them when their messages are moved away.
  Event take_event() {
    Event event = std::move(const_cast<Event&>(events.top()));
    events.pop();
    return event;
  }
  void deliver(const Message& message) {
    if (message.to.role == Role::kServer) {
      auto& server = servers.at(message.to.index);
      if (message.to.index == stopped && now < stopped_until) {
        events.push({stopped_until, ++order, message});
        return;
      }
      if (server) post(server->on_message(time_of(message.to.index), message));
      return;
    }
    for (Task& task : tasks) {
      if (!task.alive || task.self != message.to) continue;
      if (now < task.asleep_until) {
        events.push({task.asleep_until, ++order, message});
      } else {
        post(task.state->on_message(time_of(task), message));
      }
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
      task.state->request(time_of(task), message, out);
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
    task.state->request(time_of(task), message, out);
  }
  void take(Task& task, std::uint32_t group, const Message& answer) {
    if (answer.kind == Kind::kRefused) return fail("refused: " + answer.text);
    if (task.phase == Task::Phase::kPull) {
      task.versions[group] = answer.version;
      std::set<std::size_t> shown;
      const std::vector<float> values = answer.floats.whole();
      for (std::size_t i = 0; i < kElements; ++i) {
        if (values[i] != 0.0F) shown.insert(i);
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
      task.late[group] = answer.dropped;
    }
  }
  void drive(Task& task, Messages& out) {
    if (task.phase == Task::Phase::kDone) return;
    if (!task.asked) {
      task.asked = true;
      task.answered.assign(plan.servers, false);
      task.late_ones = false;
      for (std::uint32_t group = 0; group < plan.servers; ++group) {
        if (task.phase != Task::Phase::kPull || !task.late[group]) begin(task, group, out);
      }
    }
    bool all = true;
    for (std::uint32_t group = 0; group < plan.servers; ++group) {
      if (auto answer = task.state->take_answer(group)) {
        take(task, group, *answer);
        task.answered[group] = true;
      }
      const bool later = task.phase == Task::Phase::kPull && task.late[group] && !task.late_ones;
      all = all && (task.answered[group] || later);
    }
    if (!all) return;
    if (task.phase == Task::Phase::kPull && !task.late_ones &&
        std::ranges::find(task.late, true) != task.late.end()) {
      task.late_ones = true;
      for (std::uint32_t group = 0; group < plan.servers; ++group) {
        if (task.late[group]) begin(task, group, out);
      }
      return;
    }
    task.asked = false;
    using Phase = Task::Phase;
    if (task.phase == Phase::kBye) {
      task.phase = Phase::kDone;
    } else if (task.phase == Phase::kPull) {
      task.late.assign(plan.servers, false);
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
  void kill_chief_and_server();
  void start_server_again();
  void pause_some(int& pauses);
  void kill_some(int& kills, bool& server_killed);
  void disturb_others(int& chief_kills, int& other_pauses);
  void run() {
    int chief_kills = plan.chief_kills;
    int other_pauses = plan.other_pauses;
    int kills = plan.kills;
    int pauses = plan.pauses;
    bool server_killed = false;
    // Those who were killed last are gone after a while, so that the last round ends.
    double end = 1e9;
    while (trouble.empty() && now < end) {
      if (end > 1e8 && done()) end = now + 15.0;
      if (now > 1000.0) return fail("the job does not end: " + state());
      const Event event = take_event();
      now = event.time;
      if (event.message) {
        deliver(*event.message);
      } else {
        kill_some(kills, server_killed);
        pause_some(pauses);
        disturb_others(chief_kills, other_pauses);
        start_server_again();
        for (const auto& server : servers) {
          const bool sleeps = server && server->options().index == stopped && now < stopped_until;
          if (server && !sleeps) post(server->on_tick(time_of(server->options().index)));
        }
        for (std::uint32_t i = 0; i < tasks.size(); ++i) {
          if (!tasks[i].alive && now >= tasks[i].back_at) start(i);
          if (tasks[i].alive && now >= tasks[i].asleep_until) {
            post(tasks[i].state->on_tick(time_of(tasks[i])));
          }
        }
        post_tick();
      }
      for (Task& task : tasks) {
        if (!task.alive || now < task.asleep_until) continue;
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
               : shard->created() ? shard->counts().text()
                                  : "empty") +
              "\n";
    }
    return text;
  }
  // The variables of a group, where they are now: one that was taken over while it stood still may
  // not have heard of that yet, and answers nobody.
  const Shard* home(std::uint32_t group) {
    const Shard* found = nullptr;
    for (const auto& server : servers) {
      const Shard* const shard = server && !server->deposed() ? server->shard(group) : nullptr;
      const bool has_it = shard != nullptr && shard->primary();
      if (has_it && (found == nullptr || found->entries() < shard->entries())) found = shard;
    }
    return found;
  }
};

}  // namespace ronde::trainer::server

#include "test/unit/trainer/server/simulation_blows.h"  // IWYU pragma: keep
