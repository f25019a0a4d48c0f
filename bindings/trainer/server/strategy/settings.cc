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

// Flags about sums of gradients among replicas.
constexpr auto kOfSums = std::to_array<const char*>(
    {"cross-device", "wire", "gradients", "overlap", "bucket-bytes", "shuffle-submission"});

// Flags that the tasks of one training must have alike.
constexpr auto kAlike = std::to_array<std::string_view>(
    {"--model", "--batch-norm", "--seed", "--epochs", "--steps", "--batch", "--global-batch",
     "--learning-rate", "--schedule", "--warmup", "--accumulate", "--clip", "--feed"});

// Flags that need servers.
constexpr auto kOnServersAlone = std::to_array<const char*>(
    {"mode", "backup-workers", "scale-by-staleness", "partition", "standby", "feed", "deadline",
     "worker-timeout", "server-timeout", "slow-ms"});

// A text that `parse` reads; it throws TrainerError if the text is not valid.
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
                     " is about sums among replicas, and with servers there are none: leave it "
                     "out, or --strategy server");
  }
  if (table.given("replicas")) {
    throw UsageError(
        "--replicas is not for servers, where each worker is one replica: start more workers");
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
        "this task: ps (a server), worker, chief or evaluator; auto: as in TF_CONFIG"},
       {"task-index", automatic(task.index, [](auto& index) { return whole(index, 0, 1'000'000); }),
        "the place of this task in its list, from 0"}});
}

namespace {

// How servers apply gradients.
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
        "once) or stale=k (the same, and no worker is more than k steps ahead)"},
       {"backup-workers", whole(mode.backup_workers, 0, 1'000'000),
        "sync: each round drops its last so many gradients"},
       {"scale-by-staleness", on_off(mode.scale_by_staleness),
        "divide the learning rate of a gradient by 1 + its staleness: off, on"}});
}

// How long a task may be silent.
void add_failure_flags(FlagTable& table, ParameterServerOptions& options) {
  table.add(
      {{"standby", on_off(options.standby),
        "each server copies its state to the next one, which takes over if it dies: off, on"},
       {"deadline", positive(options.deadline, 1e9),
        "seconds of silence of a server until a task ends, and of all tasks until a server ends"},
       {"worker-timeout", positive(options.worker_timeout, 1e9),
        "seconds of silence after which the others go on without a worker"},
       {"server-timeout", positive(options.server_timeout, 1e9),
        "seconds of silence after which a standby takes over"}});
}

}  // namespace

void add_server_flags(FlagTable& table, ServerSettings& settings) {
  ParameterServerOptions& options = settings.served.servers;
  add_task_flags(table, settings.task);
  table.add({{"servers", whole(settings.servers, 0, kMostServers),
              "under mpirun, in place of addresses: so many of the last ranks are servers"}});
  add_mode_flags(table, options.mode);
  table.add(
      {{"partition",
        parsed(
            "whole",
            [&options](const std::string& given) { options.partition = partition_of(given); },
            "one of: whole fixed=<parts> min=<bytes> max=<bytes>"),
        "into how many parts variables are cut between servers"},
       {"feed", one_of(settings.served.fed, Choices<bool>{{"shards", false}, {"chief", true}}),
        "shards (each worker reads its own data) or chief (the task of --chief_hosts reads the "
        "data "
        "and sends the batches)"},
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
    // A process that scores checkpoints is no task of the training.
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
