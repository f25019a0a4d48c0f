// SPDX-License-Identifier: Apache-2.0
// The flags of --strategy server: which task a process is, and how the servers work; and the
// strategy that they make.
#pragma once

#include <cstdint>
#include <optional>

#include "bindings/trainer/fit/program/flags.h"
#include "bindings/trainer/fit/program/program.h"
#include "bindings/trainer/server/strategy/strategy.h"
#include "bindings/trainer/server/tasks.h"

namespace ronde::trainer::server {

struct ServerSettings {
  TaskFlags task;
  std::uint32_t servers = 0;  // under mpirun: ranks that serve
  ServedOptions served{};
  // Once flags are read: whether --strategy is server, and which task this is. No task: mpirun
  // says.
  bool chosen = false;
  std::optional<Tasks> tasks{};
  const FlagTable* flags = nullptr;
};

// --ps-hosts, --worker-hosts, --chief-hosts, --job-name and --task-index.
void add_task_flags(FlagTable& table, TaskFlags& task);

// These and all others, for run_program(). A task that flags or TF_CONFIG name chooses --strategy
// server by itself, unless the user has given another one. `settings` must outlive the table; what
// depends on the choice belongs into a check that is added later:
//
//   add_server_flags(flags, settings);
//   flags.check([&] { if (settings.chosen) flags.otherwise("batch", "1"); });
void add_server_flags(FlagTable& table, ServerSettings& settings);
// For run_program(): the strategy of this task. A server serves until the chief has closed the job,
// and has none then. `settings` must outlive what this returns.
[[nodiscard]] ServedMaker served_by(const ServerSettings& settings);

}  // namespace ronde::trainer::server
