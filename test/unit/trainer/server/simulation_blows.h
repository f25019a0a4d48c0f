// SPDX-License-Identifier: Apache-2.0
// Kills and pauses in the servers' simulation; the end of simulation.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>

#include "test/unit/trainer/server/simulation.h"

namespace ronde::trainer::server {

inline void Simulation::kill_chief_and_server() {
  const auto which = std::uniform_int_distribution<std::uint32_t>(0, plan.servers - 1)(random);
  tasks[kWorkers].alive = false;
  tasks[kWorkers].back_at = now + uniform(4.0);
  server_back = chance(0.5) ? which : kMostServers;
  server_back_at = now + uniform(4.0);
  servers[which].reset();
}

inline void Simulation::start_server_again() {
  if (server_back == kMostServers || now < server_back_at) return;
  const std::uint32_t other = server_back == 0 ? 1 : 0;
  ServerOptions options = servers[other]->options();
  options.index = server_back;
  options.start = 2;
  servers[server_back] = std::make_unique<ServerState>(options);
  server_back = kMostServers;
}

inline void Simulation::pause_some(int& pauses) {
  if (pauses == 0 || !chance(0.02)) return;
  Task& task = tasks[std::uniform_int_distribution<std::size_t>(0, kWorkers - 1)(random)];
  if (!task.alive || task.phase == Task::Phase::kDone) return;
  --pauses;
  ++blows;
  task.asleep_until = now + 5.0 + uniform(5.0);
}

inline void Simulation::kill_some(int& kills, bool& server_killed) {
  if (kills > 0 && chance(0.01)) {
    Task& task = tasks[std::uniform_int_distribution<std::size_t>(0, kWorkers - 1)(random)];
    if (task.alive && task.phase != Task::Phase::kDone) {
      --kills;
      ++blows;
      ++lives_lost;
      task.alive = false;
      task.back_at = now + uniform(12.0);
      if (chance(0.25)) {  // it never comes back, and the others must end without it
        task.phase = Task::Phase::kDone;
        task.back_at = 1e9;
      }
    }
  }
  // Once all variables are there: before, the chief would begin anew. After the last step there
  // may be no time left to take it over.
  const bool created =
      std::ranges::all_of(acknowledged, [](const auto& one) { return !one.empty(); });
  // One loss is promised to be borne: none is added where silence was taken for a death already.
  const bool whole = tasks[kWorkers].state->dead() == 0 &&
                     std::ranges::none_of(
                         servers, [](const auto& one) { return one == nullptr || one->deposed(); });
  if (plan.kills_server && !server_killed && created && whole && !done() && chance(0.02)) {
    server_killed = true;
    ++blows;
    if (plan.kills_chief) return kill_chief_and_server();
    const auto which = std::uniform_int_distribution<std::uint32_t>(0, plan.servers - 1)(random);
    if (plan.restarts_server) {
      server_back = which;
      server_back_at = now;
      servers[which].reset();
    } else if (chance(0.5)) {
      servers[which].reset();
    } else {  // it is stopped, and wakes when it was taken over
      stopped = which;
      stopped_until = now + 8.0;
    }
  }
}

// The chief alone, which comes back soon; it and servers for less than what a server may be silent.
inline void Simulation::disturb_others(int& chief_kills, int& other_pauses) {
  Task& chief = tasks[kWorkers];
  if (chief_kills > 0 && chance(0.01) && chief.alive) {
    --chief_kills;
    ++blows;
    chief.alive = false;
    chief.back_at = now + uniform(6.0);
  }
  if (other_pauses == 0 || !chance(0.02)) return;
  if (chance(0.5)) {
    chief.asleep_until = now + uniform(8.0);
  } else if (now >= stopped_until) {
    stopped = std::uniform_int_distribution<std::uint32_t>(0, plan.servers - 1)(random);
    stopped_until = now + uniform(1.0);
  } else {
    return;
  }
  --other_pauses;
  ++blows;
}

}  // namespace ronde::trainer::server
