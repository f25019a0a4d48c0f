// SPDX-License-Identifier: Apache-2.0
// The strategy whose variables live on servers.
#pragma once

#include <cstdint>
#include <memory>

#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/server/strategy/served.h"

namespace ronde::trainer {

namespace server {
// Throws TrainerError, with a line, for what does not fit together.
void check_tasks(const Tasks& tasks, const ServedOptions& options);
}  // namespace server

// Tasks of a job, each with one replica, at their own pace: workers pull variables and push
// gradients. A strategy like the others for Model, train() and loops of a program's own,
// but that a task's reductions, evaluations and predictions are its own, over all of the data.
// Servers have the variables of one model. A process that is to serve calls server::serve().
class ParameterServer final : public Strategy {
 public:
  // Throws TrainerError, with a line, for tasks and options that do not fit together.
  ParameterServer(const server::Tasks& tasks, const ServedOptions& options);
  ~ParameterServer() override;

  [[nodiscard]] std::unique_ptr<GradientPath> gradient_path(
      Replica& here, const Network& model, const RuleOptions& how, UpdateRule& rule,
      const OptimizerOptions& options) override;
  // A worker waits until the chief has closed the job, which the chief does once all are here, or
  // gone. Throws TrainerError where the chief is silent until the deadline.
  void finish() override;

 private:
  std::shared_ptr<server::ServedJob> job_;
};

}  // namespace ronde::trainer
