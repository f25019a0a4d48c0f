// SPDX-License-Identifier: Apache-2.0
// The flags of --strategy server (which task this process is, how the servers work), and the
// strategy that they make.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

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

// Both, for a program that asks nothing of the settings. Ends with 0 once the body has returned.
template <typename Body>
int run_with_servers(int argc, char** argv, FlagTable& flags, const Body& body) {
  static_assert(std::is_void_v<std::invoke_result_t<const Body&, Strategy&>>,
                "a body that returns an exit code is for run_program()");
  const auto settings = std::make_shared<ServerSettings>();
  add_server_flags(flags, *settings);
  flags.check([settings] {});  // which lives as long as the table
  const auto all = [&](Strategy& strategy) { return body(strategy), 0; };
  return run_program(argc, argv, flags, all, served_by(*settings));
}

}  // namespace ronde::trainer::server
