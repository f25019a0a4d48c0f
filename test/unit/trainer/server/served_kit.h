// SPDX-License-Identifier: Apache-2.0
// A whole training on servers: each task on a thread of this process.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/server/strategy/strategy.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

struct ServedJobOptions {
  std::uint32_t servers = 1;
  std::uint32_t workers = 2;
  bool chief = false;  // a task of its own
  ServedOptions tasks{};
  // The error of each task that ends with one, by its name; null: there must be none.
  std::map<std::string, std::string>* errors = nullptr;
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
  std::mutex mutex;
  const auto run_task = [&](Role role, std::uint32_t index) {
    ServedOptions options = job.tasks;
    options.servers.say = [](const std::string&) {};
    Tasks task = all;
    task.role = role;
    task.index = index;
    if (role == Role::kServer) return serve(task, options.servers);
    trainer::ParameterServer strategy(task, options);
    const Scope scope(strategy);
    std::string mine;
    try {
      mine = program(strategy);
    } catch (const TrainerError& error) {
      strategy.fail(error.what(), error.exit_code());
      throw;
    }
    strategy.finish();
    if (task.is_chief()) result = std::move(mine);
  };
  const auto run = [&](Role role, std::uint32_t index) {
    try {
      run_task(role, index);
    } catch (const TrainerError& error) {
      if (job.errors == nullptr) throw;
      const std::lock_guard lock(mutex);
      (*job.errors)[text_of({role, index, 0})] = error.what();
    }
  };
  std::vector<std::jthread> tasks;
  for (std::uint32_t i = 0; i < job.servers; ++i) tasks.emplace_back(run, Role::kServer, i);
  for (std::uint32_t i = 0; i < job.workers; ++i) tasks.emplace_back(run, Role::kWorker, i);
  if (job.chief) tasks.emplace_back(run, Role::kChief, 0U);
  tasks.clear();
  return result;
}

}  // namespace ronde::trainer::server
