// SPDX-License-Identifier: Apache-2.0
// Who this process is in a job with parameter servers, and where all of the others are.
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

  // Worker 0 is the chief where the job has no chief of its own.
  [[nodiscard]] bool is_chief() const {
    return role == Role::kChief || (chief.empty() && role == Role::kWorker && index == 0);
  }
  [[nodiscard]] Address self() const;  // of this start
  // What must be the same on all tasks, as settings.
  [[nodiscard]] std::string text() const;
  // All addresses.
  [[nodiscard]] std::vector<std::string> all() const;
};

// What the user says of a task by flags: fit/program/settings.h has them.
struct TaskFlags {
  std::string servers{};  // host:port of each, with commas between them
  std::string workers{};
  std::string chief{};
  std::optional<Role> role{};
  std::optional<std::uint32_t> index{};

  [[nodiscard]] bool any() const { return role || index || !(servers + workers + chief).empty(); }
};

// From flags, or else from TF_CONFIG. None where neither names a server. Throws TrainerError in one
// line.
[[nodiscard]] std::optional<Tasks> tasks_of(const TaskFlags& flags);

// Makes tasks of a job's ranks: the last `servers` serve, and the others work. Collective.
[[nodiscard]] Tasks tasks_of_ranks(Replica& replica, std::uint32_t servers);

}  // namespace ronde::trainer::server
