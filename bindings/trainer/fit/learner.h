// SPDX-License-Identifier: Apache-2.0
// Whatever learns: a model, the sums of its gradients over the ranks and its optimiser, wherever
// their numbers live. The training loop knows no more of them than this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/trainer/data/batch.h"
#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/optim/gradient_path.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

// What a learner says of its steps so far, on this rank.
struct LearnerTimes {
  double waited_seconds = 0.0;      // for sums over the ranks
  double share_before_wait = 0.0;   // of the gradients' bytes: were summed before backward ended
  double overlapped_seconds = 0.0;  // from the first gradients that left in a step to its wait
  double update_seconds = 0.0;      // from the sums to the end of the step
};

// Thread safety: belongs to one thread. "Collective" means: every rank calls it at the same point.
class Learner {
 public:
  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  virtual ~Learner() = default;

  // Collective: every rank gets the state of `root`.
  virtual void broadcast_state(int root) = 0;
  // Collective: every rank gets the running statistics of `root`.
  virtual void broadcast_statistics(int /*root*/) {}
  // Collective: computes the outputs of this batch and forgets them, so that a model that does not
  // fit its data says so before the first step. Throws TrainerError.
  virtual void try_shapes(const Batch& batch) = 0;

  // Collective: forward, backward, the sums over the ranks, and the update. It need not be over
  // when this returns. Throws NotFiniteStep, on every rank, where nothing was updated since a
  // number is not finite; a learner on a device leaves that to the loss of the epoch. A batch with
  // a `failure` has no samples, and makes all ranks throw that; with a learner on a device this
  // rank throws alone.
  virtual void step(const StepBatch& batch, std::uint64_t epoch) = 0;
  // Collective: the steps of an epoch are over.
  virtual void end_epoch() {}
  // The sums of this rank's steps since they were taken last, once all steps are over.
  [[nodiscard]] virtual Metrics take_metrics() = 0;
  // The same sums, which stay where they are.
  [[nodiscard]] virtual Metrics metrics() const { return {}; }
  // The sums of this rank in the last step alone; zeros where they are not known yet.
  [[nodiscard]] virtual Metrics last_step() const { return {}; }
  // The sums of this batch, with the parameters as they are; not collective.
  [[nodiscard]] virtual Metrics evaluate(const Batch& batch) = 0;
  // The model's outputs for this batch, row-major; not collective.
  [[nodiscard]] virtual std::vector<float> predict(const Batch& batch) = 0;

  // 16 hexadecimal digits over the bytes of all parameters, in order.
  [[nodiscard]] virtual std::string parameter_hash() = 0;
  // The names of the parameters that no step of this rank has used yet, in the model's order.
  [[nodiscard]] virtual std::vector<std::string> unused() const { return {}; }
  [[nodiscard]] virtual LearnerTimes times() const = 0;
  // How its gradients go.
  [[nodiscard]] virtual GradientPath& path() noexcept { return path_; }

 private:
  GradientPath path_;
};

// A step after which a number would not be finite. Every rank throws it in the same step.
class NotFiniteStep : public TrainerError {
 public:
  // `what` names the summed gradient, and has `here` in it: what was not finite on this rank or
  // made it fail, with what to do, or nothing.
  NotFiniteStep(const std::string& what, std::string here, int exit_code)
      : TrainerError(what, exit_code), here_(std::move(here)) {}

  [[nodiscard]] const std::string& here() const noexcept { return here_; }

 private:
  std::string here_;
};

}  // namespace ronde::trainer
