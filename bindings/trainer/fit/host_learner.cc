// SPDX-License-Identifier: Apache-2.0
// A step over the tape.
#include "bindings/trainer/fit/host_learner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bindings/trainer/optim/replicas.h"

namespace ronde::trainer {

namespace {

// Puts the running statistics back: a trial must leave no trace.
class KeepStatistics {
 public:
  explicit KeepStatistics(const std::vector<StateTensor>& statistics) : statistics_(statistics) {
    for (const StateTensor& one : statistics_) {
      kept_.emplace_back(one.values.begin(), one.values.end());
    }
  }
  KeepStatistics(const KeepStatistics&) = delete;
  KeepStatistics& operator=(const KeepStatistics&) = delete;
  ~KeepStatistics() {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      std::ranges::copy(kept_[i], statistics_[i].values.begin());
    }
  }

 private:
  const std::vector<StateTensor>& statistics_;
  std::vector<std::vector<float>> kept_;
};

}  // namespace

Loss classification_loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch) {
  return softmax_cross_entropy(outputs, batch.labels, global_batch);
}

Loss two_classes_loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch) {
  return binary_cross_entropy(outputs, batch.labels, global_batch);
}

Loss regression_loss(const Tensor& outputs, const Batch& batch, std::size_t global_batch) {
  return mean_squared_error(outputs, batch.targets, global_batch);
}

HostLearner::HostLearner(Model model, LossFunction loss, DistributedOptimizer& optimizer,
                         std::uint64_t seed, int threads)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      optimizer_(optimizer),
      seed_(seed),
      tape_(threads) {}

Tensor HostLearner::outputs(const Batch& batch, bool training, std::uint64_t epoch) {
  tape_.begin({training, seed_, epoch, batch.samples, batch.repetitions});
  return model_(tape_.borrow(batch.shape, batch.inputs));
}

void HostLearner::try_shapes(const Batch& batch) {
  const KeepStatistics keep(model_.statistics());
  // As in training, since only then the tape knows what each layer is called.
  const Loss loss = loss_(outputs(batch, true, 0), batch, std::max<std::size_t>(1, batch.size()));
  (void)loss;
  require_listed(tape_, model_.parameters(), model_.statistics());
  tape_.begin();
}

void HostLearner::step(const StepBatch& batch, std::uint64_t epoch) {
  ServedPath* const servers = served();
  last_step_ = {};
  if (servers != nullptr && servers->sends_data()) {
    optimizer_.set_global_step(servers->global_step());
    const auto [loss, correct, samples] =
        servers->send_batch(batch, epoch, optimizer_.learning_rate_now());
    last_step_ = {loss, correct, samples};
    return metrics_.add(last_step_);
  }
  if (servers == nullptr || servers->reads_data()) return take_step(batch, epoch);
  StepBatch sent;
  if (!servers->await_batch(sent, epoch)) return;
  take_step(sent, epoch);
  servers->answer({last_step_.loss_sum, last_step_.correct, last_step_.samples});
}

void HostLearner::take_step(const StepBatch& batch, std::uint64_t epoch) {
  // Its place in the data, which a rank that has left out a batch knows too; readable in errors,
  // and above any number of steps in an epoch.
  constexpr std::uint64_t kEpoch = 1'000'000'000;
  optimizer_.begin_step(epoch * kEpoch + batch.step);
  std::string bad = batch.failure;
  int exit_code = bad.empty() ? kExitConfiguration : kExitFailure;
  for (const Batch& part : batch.parts) {
    Loss loss;
    try {
      loss = loss_(outputs(part, true, epoch), part, batch.global_size);
    } catch (const Error&) {
      throw;  // the job's, not this rank's
    } catch (const std::exception& error) {
      // The others wait for gradients: they learn of it as of a loss that is no number. Where they
      // wait in the forward pass, too, only the end of this rank can tell them.
      if (optimizer_.sums_statistics()) throw;
      if (bad.empty()) {
        bad = error.what();
        exit_code = exit_code_of(error);
      }
    }
    if (bad.empty() && !std::isfinite(loss.sum)) {
      bad = "the loss is not a finite number, first after " + tape_.first_not_finite() +
            ": use a smaller learning rate";
    }
    if (!bad.empty()) loss.sum = std::numeric_limits<double>::quiet_NaN();
    const Metrics one = metrics_of(loss);
    metrics_.add(one);
    last_step_.add(one);
    optimizer_.backward(tape_, loss);
  }
  try {
    optimizer_.step();
  } catch (const NotFinite& error) {
    const std::string here = bad.empty() ? "" : "; on this rank: " + bad;
    throw NotFiniteStep(error.what() + here, std::move(bad), exit_code);
  }
}

Metrics HostLearner::take_metrics() {
  if (ServedPath* const servers = served(); servers != nullptr && servers->sends_data()) {
    const auto [loss, correct, samples] = servers->finish_sent();
    metrics_.add(Metrics{loss, correct, samples});
  }
  return std::exchange(metrics_, {});
}

Metrics HostLearner::evaluate(const Batch& batch) {
  return metrics_of(loss_(outputs(batch, false, 0), batch, std::max<std::size_t>(1, batch.size())));
}

std::vector<float> HostLearner::predict(const Batch& batch) {
  const Tensor result = outputs(batch, false, 0);
  const std::span<const float> values = result.values();
  return {values.begin(), values.end()};
}

std::vector<std::string> HostLearner::unused() const {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < optimizer_.used().size(); ++i) {
    if (optimizer_.used()[i] == 0) unused.push_back(optimizer_.parameters()[i]->name());
  }
  return unused;
}

LearnerTimes HostLearner::times() const {
  const AveragerStatistics averaging = optimizer_.averaging();
  return {optimizer_.waited_seconds(), averaging.share_before_wait(), averaging.seconds_before_wait,
          optimizer_.update_seconds()};
}

}  // namespace ronde::trainer
