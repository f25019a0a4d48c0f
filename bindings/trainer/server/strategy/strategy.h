// SPDX-License-Identifier: Apache-2.0
// The strategy whose variables live on servers.
#pragma once

#include <memory>
#include <string>

#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/optim/gradient_path.h"
#include "bindings/trainer/server/parameter_server.h"

namespace ronde::trainer {

struct ServedOptions {
  server::ParameterServerOptions servers{};
  bool fed = false;      // the chief, which is no worker, reads the data and sends the batches
  double slow_ms = 0.0;  // test aid: milliseconds that each step of this task takes more
  int threads = 1;       // of the task's kernels
};

namespace server {

// A task of a job. Its connection outlives the model, since the end of the job needs it.
struct ServedJob {
  Tasks tasks;
  ServedOptions options;
  std::unique_ptr<ParameterServer> servers{};  // made when variables are needed

  [[nodiscard]] bool in_sync() const { return options.servers.mode.mode == Mode::kSync; }
  [[nodiscard]] bool is_worker() const { return tasks.role == Role::kWorker; }
};

// All must outlive the path.
[[nodiscard]] std::unique_ptr<GradientPath> make_served_path(std::shared_ptr<ServedJob> job,
                                                             const Network& model,
                                                             UpdateRule& optimizer,
                                                             const OptimizerOptions& options);
// Throws TrainerError for tasks and options that do not fit together.
void check_tasks(const Tasks& tasks, const ServedOptions& options);

}  // namespace server

// Each task of the job has one replica and steps at its own pace: workers pull variables and push
// gradients. A strategy like the others for Model, train() and loops of a program's own;
// but reductions, evaluations and predictions are each task's own, over all of the data. The
// servers have the variables of one model. A server's process calls server::serve() instead.
class ParameterServer final : public Strategy {
 public:
  // Throws TrainerError for tasks and options that do not fit together.
  ParameterServer(const server::Tasks& tasks, const ServedOptions& options);
  ~ParameterServer() override;

  [[nodiscard]] std::unique_ptr<GradientPath> gradient_path(
      Replica& here, const Network& model, UpdateRule& rule,
      const OptimizerOptions& options) override;
  // The chief closes the job once all other tasks are here, or gone; the others wait for that.
  // Throws TrainerError if the chief is silent until the deadline.
  void finish() override;
  void fail(const std::string& error, int exit_code) override;

 private:
  std::shared_ptr<server::ServedJob> job_;
};

}  // namespace ronde::trainer
