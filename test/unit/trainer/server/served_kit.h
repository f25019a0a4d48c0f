// SPDX-License-Identifier: Apache-2.0
// A whole training on servers: each task on a thread of this process.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/server/strategy/strategy.h"

namespace ronde::trainer::server {

struct ServedJobOptions {
  std::uint32_t servers = 1;
  std::uint32_t workers = 2;
  bool chief = false;  // a task of its own
  ServedOptions tasks{};
};

// What the program returns on the chief. The others' results go.
inline std::string run_served(const ServedJobOptions& job,
                              const std::function<std::string(Strategy&)>& program) {
  static std::atomic<int> jobs = 0;
  const std::string prefix =
      "ipc://@ronde-served-" + std::to_string(::getpid()) + "-" + std::to_string(++jobs) + "-";
  Tasks all;
  for (std::uint32_t i = 0; i < job.servers; ++i) {
    all.servers.push_back(prefix + "ps" + std::to_string(i));
  }
  for (std::uint32_t i = 0; i < job.workers; ++i) all.workers.push_back(prefix + std::to_string(i));
  if (job.chief) all.chief = {prefix + "chief"};
  std::string result;
  const auto run = [&](Role role, std::uint32_t index) {
    ServedOptions options = job.tasks;
    options.servers.say = [](const std::string&) {};
    Tasks task = all;
    task.role = role;
    task.index = index;
    if (role == Role::kServer) return serve(task, options.servers);
    trainer::ParameterServer strategy(task, options);
    const Scope scope(strategy);
    std::string mine = program(strategy);
    strategy.finish();
    if (task.is_chief()) result = std::move(mine);
  };
  std::vector<std::jthread> tasks;
  for (std::uint32_t i = 0; i < job.servers; ++i) tasks.emplace_back(run, Role::kServer, i);
  for (std::uint32_t i = 0; i < job.workers; ++i) tasks.emplace_back(run, Role::kWorker, i);
  if (job.chief) tasks.emplace_back(run, Role::kChief, 0U);
  tasks.clear();
  return result;
}

}  // namespace ronde::trainer::server
