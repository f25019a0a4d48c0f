// SPDX-License-Identifier: Apache-2.0
// The flags of a training on servers.
#include "bindings/trainer/server/strategy/settings.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <ronde/ronde.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/server/placement.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

// How replicas sum gradients among each other.
constexpr auto kOfSums = std::to_array<const char*>(
    {"cross-device", "wire", "gradients", "overlap", "bucket-bytes", "shuffle-submission"});

// What tasks of one training say alike.
constexpr auto kAlike = std::to_array<std::string_view>(
    {"--model", "--batch-norm", "--seed", "--epochs", "--steps", "--batch", "--global-batch",
     "--learning-rate", "--schedule", "--warmup", "--accumulate", "--clip", "--feed"});

// What makes no sense without servers.
constexpr auto kOnServersAlone = std::to_array<const char*>(
    {"mode", "backup-workers", "scale-by-staleness", "partition", "standby", "feed", "deadline",
     "worker-timeout", "server-timeout", "slow-ms"});

// A text that `parse` reads, and throws TrainerError for.
FlagValue parsed(std::string text, std::function<void(const std::string&)> parse,
                 std::string valid) {
  const auto read = [parse = std::move(parse)](const std::string& given) {
    try {
      return parse(given), true;
    } catch (const TrainerError&) {
      return false;
    }
  };
  return {std::move(text), read, std::move(valid)};
}

void choose(FlagTable& table, ServerSettings& settings) {
  const std::string strategy = table.values_of({"strategy"}).front().second;
  const bool other = table.given("strategy") && strategy != "server";
  const bool named = settings.task.any() || settings.servers != 0;
  if (other && named) {
    throw UsageError("--strategy " + strategy +
                     " has no servers, and flags name some: leave one of them out");
  }
  if (settings.task.any() && settings.servers != 0) {
    throw UsageError(
        "--servers makes servers of the last ranks of a job under mpirun, and other flags name the "
        "servers' addresses: leave one of them out");
  }
  if (!other) settings.tasks = tasks_of(settings.task);
  settings.chosen = !other && (strategy == "server" || settings.tasks || settings.servers != 0);
  for (const char* const flag : kOnServersAlone) {
    if (settings.chosen || !table.given(flag)) continue;
    throw UsageError(std::string("--") + flag +
                     " is for training on servers: leave it out, or use --strategy server");
  }
  if (!settings.chosen) return;
  table.otherwise("strategy", "server");
  for (const char* const flag : kOfSums) {
    if (!table.given(flag)) continue;
    throw UsageError(std::string("--") + flag +
                     " is about sums that replicas make among each other, and servers make them: "
                     "leave it out, or --strategy server");
  }
  if (table.given("replicas")) {
    throw UsageError("--replicas: a task of a training on servers is one: start more workers");
  }
  if (settings.tasks || settings.servers != 0) return;
  throw UsageError(
      "--strategy server: which task is this? Use --ps_hosts, --worker_hosts, --job_name and "
      "--task_index, or TF_CONFIG, or mpirun and --servers 1");
}

}  // namespace

void add_task_flags(FlagTable& table, TaskFlags& task) {
  const Choices<Role> roles{{"ps", Role::kServer},
                            {"worker", Role::kWorker},
                            {"chief", Role::kChief},
                            {"master", Role::kChief},
                            {"evaluator", Role::kEvaluator}};
  table.add(
      {{"ps-hosts", text(task.servers), "host:port of each server, with commas between them"},
       {"worker-hosts", text(task.workers), "host:port of each worker"},
       {"chief-hosts", text(task.chief), "host:port of a chief that is no worker; else worker 0"},
       {"job-name", automatic(task.role, [&](Role& role) { return one_of(role, roles); }),
        "what this task is: ps (a server), worker, chief or evaluator; auto: TF_CONFIG says"},
       {"task-index", automatic(task.index, [](auto& index) { return whole(index, 0, 1'000'000); }),
        "the place of this task in its list, from 0"}});
}

namespace {

// How the servers take gradients.
void add_mode_flags(FlagTable& table, ModeOptions& mode) {
  table.add(
      {{"mode",
        parsed(
            text_of(mode),
            [&mode](const std::string& given) {
              const ModeOptions read = mode_of(given);
              mode.mode = read.mode;
              mode.bound = read.bound;
            },
            "one of: sync async stale=k, such as stale=2"),
        "servers: sync (they average a round of all workers), async (they apply each gradient at "
        "once) or stale=k (and no worker is more than k steps ahead)"},
       {"backup-workers", whole(mode.backup_workers, 0, 1'000'000),
        "sync: the last so many gradients of each round are dropped"},
       {"scale-by-staleness", on_off(mode.scale_by_staleness),
        "divide the learning rate of a gradient by 1 + its staleness: off, on"}});
}

// What happens to those that are silent.
void add_failure_flags(FlagTable& table, ParameterServerOptions& options) {
  table.add(
      {{"standby", on_off(options.standby),
        "the next server has all that a server has, and takes over from it: off, on"},
       {"deadline", positive(options.deadline, 1e9),
        "seconds of silence of a server until a task ends, and of all tasks until a server does"},
       {"worker-timeout", positive(options.worker_timeout, 1e9),
        "seconds of silence after which nobody waits for a worker"},
       {"server-timeout", positive(options.server_timeout, 1e9),
        "seconds of silence after which a standby takes over"}});
}

}  // namespace

void add_server_flags(FlagTable& table, ServerSettings& settings) {
  ParameterServerOptions& options = settings.served.servers;
  add_task_flags(table, settings.task);
  table.add({{"servers", whole(settings.servers, 0, kMostServers),
              "under mpirun, in place of addresses: so many of the last ranks serve"}});
  add_mode_flags(table, options.mode);
  table.add(
      {{"partition",
        parsed(
            "whole",
            [&options](const std::string& given) { options.partition = partition_of(given); },
            "one of: whole fixed=<parts> min=<bytes> max=<bytes>"),
        "into how many parts variables are cut between servers"},
       {"feed", one_of(settings.served.fed, Choices<bool>{{"shards", false}, {"chief", true}}),
        "who reads the data: shards (each worker its own) or chief (of --chief_hosts: it sends the "
        "batches)"},
       {"slow-ms",
        real(
            settings.served.slow_ms, [](double value) { return value >= 0.0; },
            "0 or a number above it"),
        "test aid: each step of this task takes so many milliseconds more"}});
  add_failure_flags(table, options);
  settings.flags = &table;
  table.check([&table, &settings] { choose(table, settings); });
}

namespace {

Tasks tasks_of_job(std::uint32_t servers) {
  MultiWorkerMirrored ranks({.say = [](const std::string& /*choice*/) {}});  // for addresses alone
  Replica& replica = ranks.replica(0);
  Tasks tasks = tasks_of_ranks(replica, servers);
  replica.barrier("server/tasks");
  return tasks;
}

}  // namespace

ServedMaker served_by(const ServerSettings& settings) {
  return [&settings](int threads) -> std::unique_ptr<Strategy> {
    const Flags flags = settings.flags->values();
    // Beside a training: that of checkpoints is no task of it.
    if (std::ranges::find(flags, Flags::value_type("--job", "evaluate")) != flags.end()) {
      return std::make_unique<Default>();
    }
    const Tasks tasks = settings.tasks ? *settings.tasks : tasks_of_job(settings.servers);
    ServedOptions options = settings.served;
    if (tasks.role == Role::kServer) {
      check_tasks(tasks, options);
      return serve(tasks, options.servers), nullptr;
    }
    options.threads = threads;
    for (const auto& [name, value] : flags) {
      const bool same = std::ranges::find(kAlike, name) != kAlike.end();
      if (same) options.servers.alike.emplace_back(name, value);
    }
    return std::make_unique<trainer::ParameterServer>(tasks, options);
  };
}

}  // namespace ronde::trainer::server
