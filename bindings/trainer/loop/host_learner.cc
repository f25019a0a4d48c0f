// SPDX-License-Identifier: Apache-2.0
// A step over the tape.
#include "bindings/trainer/loop/host_learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

HostLearner::HostLearner(Model model, LossFunction loss, DistributedOptimizer& optimizer,
                         std::uint64_t seed, int threads)
    : model_(std::move(model)),
      loss_(std::move(loss)),
      optimizer_(optimizer),
      seed_(seed),
      tape_(threads) {}

Tensor HostLearner::outputs(const Batch& batch, bool training, std::uint64_t epoch) {
  tape_.begin({training, seed_, epoch, batch.samples});
  return model_(tape_.borrow(batch.shape, batch.inputs));
}

void HostLearner::try_shapes(const Batch& batch) {
  const KeepStatistics keep(model_.statistics());
  // As in training, since only then the tape knows what each layer is called.
  const Loss loss = loss_(outputs(batch, true, 0), batch, std::max<std::size_t>(1, batch.size()));
  (void)loss;
  tape_.begin();
}

void HostLearner::step(const StepBatch& batch, std::uint64_t epoch) {
  std::string bad;
  last_step_ = {};
  for (const Batch& part : batch.parts) {
    const Loss loss = loss_(outputs(part, true, epoch), part, batch.global_size);
    metrics_.add(loss.sum, loss.correct, loss.samples);
    last_step_.add(loss.sum, loss.correct, loss.samples);
    if (!std::isfinite(loss.sum) && bad.empty()) {
      bad = "the loss is not a finite number, first after " + tape_.first_not_finite();
    }
    optimizer_.backward(tape_, loss);
  }
  try {
    optimizer_.step();
  } catch (const NotFinite& error) {
    throw NotFiniteStep(error.what(), std::move(bad));
  }
}

Metrics HostLearner::take_metrics() { return std::exchange(metrics_, {}); }

Metrics HostLearner::evaluate(const Batch& batch) {
  const Loss loss = loss_(outputs(batch, false, 0), batch, std::max<std::size_t>(1, batch.size()));
  Metrics metrics;
  metrics.add(loss.sum, loss.correct, loss.samples);
  return metrics;
}

std::vector<float> HostLearner::predict(const Batch& batch) {
  const Tensor result = outputs(batch, false, 0);
  const std::span<const float> values = result.values();
  return {values.begin(), values.end()};
}

std::vector<float> HostLearner::unused() const {
  std::vector<float> unused;
  for (const std::uint8_t used : optimizer_.used()) unused.push_back(used != 0 ? 0.0F : 1.0F);
  return unused;
}

LearnerTimes HostLearner::times() const {
  const AveragerStatistics averaging = optimizer_.averaging();
  return {averaging.seconds_in_wait, averaging.share_before_wait(), averaging.seconds_before_wait,
          optimizer_.update_seconds()};
}

}  // namespace ronde::trainer
