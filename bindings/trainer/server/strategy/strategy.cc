// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/strategy/strategy.h"

#include <string>
#include <utility>

#include "bindings/trainer/server/strategy/served.h"
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
    throw TrainerError("--backup_workers is for --mode sync: in others nobody waits for a round",
                       kExitConfiguration);
  }
  if (options.servers.mode.scale_by_staleness && options.servers.mode.mode == server::Mode::kSync) {
    throw TrainerError("--scale_by_staleness is for --mode async and stale=k: in sync nothing is",
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

// Its own job of one: what it shares with other tasks is on the servers.
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
                                                             const RuleOptions& how,
                                                             UpdateRule& rule,
                                                             const OptimizerOptions& options) {
  if (job_->servers != nullptr) {
    throw TrainerError(
        "servers have the variables of one model, and another optimiser is made: use one",
        kExitConfiguration);
  }
  if (job_->options.fed && options.accumulate != 1) {
    throw TrainerError(
        "--accumulate is for workers that read their data: with --feed chief use a smaller batch",
        kExitConfiguration);
  }
  return std::make_unique<server::Served>(job_, model.parameters(), model.statistics(), how, rule,
                                          options.clip_norm);
}

void ParameterServer::finish() {
  if (job_->servers == nullptr) return;
  server::ParameterServer& all = *job_->servers;
  all.leave();
  if (!all.is_chief()) return all.wait_for(UINT64_MAX);
  (void)all.wait_for_workers();
  all.close();
}

}  // namespace ronde::trainer
