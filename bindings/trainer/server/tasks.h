// SPDX-License-Identifier: Apache-2.0
// The tasks of a job with parameter servers: their addresses, and which one this process is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/server/protocol.h"

namespace ronde::trainer::server {

struct Tasks {
  std::vector<std::string> servers;  // host:port of each
  std::vector<std::string> workers;
  std::vector<std::string> chief;  // none, or one
  Role role = Role::kWorker;
  std::uint32_t index = 0;

  // Worker 0 is the chief of a job without a task "chief".
  [[nodiscard]] bool is_chief() const {
    return role == Role::kChief || (chief.empty() && role == Role::kWorker && index == 0);
  }
  // With a new incarnation, except of a server.
  [[nodiscard]] Address self() const;
  // The settings that must be the same on all tasks.
  [[nodiscard]] std::string text() const;
  // The addresses of all tasks.
  [[nodiscard]] std::vector<std::string> all() const;
};

// The values of a task's flags: strategy/settings.h has the flags.
struct TaskFlags {
  std::string servers{};  // host:port of each, with commas between them
  std::string workers{};
  std::string chief{};
  std::optional<Role> role{};
  std::optional<std::uint32_t> index{};

  [[nodiscard]] bool any() const { return role || index || !(servers + workers + chief).empty(); }
};

// From flags, or else from TF_CONFIG; none if neither names a server. Throws TrainerError.
[[nodiscard]] std::optional<Tasks> tasks_of(const TaskFlags& flags);

// The ranks of a job as tasks: the last `servers` are servers, the others workers. Collective.
[[nodiscard]] Tasks tasks_of_ranks(Replica& replica, std::uint32_t servers);

}  // namespace ronde::trainer::server
