// SPDX-License-Identifier: Apache-2.0
// The flags of --strategy server (which task this process is, how the servers work), and the
// strategy that they make.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "bindings/trainer/fit/program/flags.h"
#include "bindings/trainer/fit/program/program.h"
#include "bindings/trainer/server/strategy/strategy.h"
#include "bindings/trainer/server/tasks.h"

namespace ronde::trainer::server {

struct ServerSettings {
  TaskFlags task;
  std::uint32_t servers = 0;  // under mpirun: how many ranks are servers
  ServedOptions served{};
  // Set once flags are read: whether --strategy is server, and which task this is (none: its rank
  // under mpirun decides).
  bool chosen = false;
  std::optional<Tasks> tasks{};
  const FlagTable* flags = nullptr;
};

// --ps-hosts, --worker-hosts, --chief-hosts, --job-name and --task-index.
void add_task_flags(FlagTable& table, TaskFlags& task);

// These and all others, for run_program(). If flags or TF_CONFIG name a task, --strategy is server
// unless the user has given another one. `settings` must outlive the table. A check that depends on
// the strategy must be added later:
//
//   add_server_flags(flags, settings);
//   flags.check([&] { if (settings.chosen) flags.otherwise("batch", "1"); });
void add_server_flags(FlagTable& table, ServerSettings& settings);
// For run_program(): makes the strategy of this task. On a server it runs the server instead, and
// returns null. `settings` must outlive it.
[[nodiscard]] ServedMaker served_by(const ServerSettings& settings);

// Both, for a program that asks nothing of the settings and ends with 0.
inline int run_program(int argc, char** argv, FlagTable& flags,
                       const std::function<void(Strategy&)>& body) {
  ServerSettings settings;
  add_server_flags(flags, settings);
  const auto all = [&](Strategy& strategy) { return body(strategy), 0; };
  return trainer::run_program(argc, argv, flags, all, served_by(settings));
}

}  // namespace ronde::trainer::server
