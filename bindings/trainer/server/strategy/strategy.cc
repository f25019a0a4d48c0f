// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/strategy/strategy.h"

#include <string>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

using server::Role;
using server::Tasks;

void server::check_tasks(const Tasks& tasks, const ServedOptions& options) {
  const std::uint32_t backups = options.servers.mode.backup_workers;
  if (options.fed && tasks.chief.empty()) {
    throw TrainerError(
        "--feed chief needs a task that is the chief and no worker: name it in --chief_hosts",
        kExitConfiguration);
  }
  if (backups != 0 && options.servers.mode.mode != server::Mode::kSync) {
    throw TrainerError("--backup_workers is for --mode sync: other modes have no rounds",
                       kExitConfiguration);
  }
  if (options.servers.mode.scale_by_staleness && options.servers.mode.mode == server::Mode::kSync) {
    throw TrainerError(
        "--scale_by_staleness is for --mode async and stale=k: sync has no staleness",
        kExitConfiguration);
  }
  if (backups >= tasks.workers.size()) {
    throw TrainerError("--backup_workers is " + std::to_string(backups) + " of " +
                           std::to_string(tasks.workers.size()) +
                           " workers: one must be left to wait for",
                       kExitConfiguration);
  }
}

namespace {

// An engine of one rank: tasks share only the variables on the servers.
Engine alone(const Tasks& tasks, const ServedOptions& options) {
  server::check_tasks(tasks, options);
  return Engine(LocalJob(1), 0);
}

}  // namespace

ParameterServer::ParameterServer(const Tasks& tasks, const ServedOptions& options)
    : Strategy({.name = "ParameterServer",
                .open = [&](std::size_t /*local*/) { return alone(tasks, options); },
                .threads = options.threads,
                .workers = tasks.workers.size(),
                .worker = tasks.role == Role::kWorker ? tasks.index : tasks.workers.size(),
                .steps_per_batch =
                    options.servers.mode.mode == server::Mode::kSync ? 1 : tasks.workers.size(),
                .is_chief = tasks.is_chief(),
                .reads_data = !options.fed || tasks.role != Role::kWorker,
                .only_evaluates = tasks.role == Role::kEvaluator}),
      job_(std::make_shared<server::ServedJob>(server::ServedJob{tasks, options})) {}

ParameterServer::~ParameterServer() = default;

std::unique_ptr<GradientPath> ParameterServer::gradient_path(Replica& /*here*/,
                                                             const Network& model,
                                                             UpdateRule& optimizer,
                                                             const OptimizerOptions& options) {
  if (job_->servers != nullptr) {
    throw TrainerError(
        "servers have the variables of one model with one optimiser: do not make another one",
        kExitConfiguration);
  }
  if (job_->options.fed && options.accumulate != 1) {
    throw TrainerError(
        "--accumulate is for workers that read their data: with --feed chief use a smaller batch",
        kExitConfiguration);
  }
  return server::make_served_path(job_, model, optimizer, options);
}

void ParameterServer::finish() {
  if (job_->servers == nullptr) return;
  server::ParameterServer& all = *job_->servers;
  all.leave();
  if (!all.is_chief()) return all.wait_for(UINT64_MAX);
  (void)all.wait_for_workers();
  all.close();
}

// A chief that fails before it has a model names no variables: servers that have variables of an
// earlier chief refuse its message, and go on.
void ParameterServer::fail(const std::string& error, int exit_code) {
  auto& servers = job_->servers;
  if (servers == nullptr && !is_chief()) return;
  if (servers == nullptr) {
    servers = std::make_unique<server::ParameterServer>(job_->tasks, std::vector<Parameter*>(),
                                                        job_->options.servers);
  }
  servers->fail(error, exit_code);
}

}  // namespace ronde::trainer
