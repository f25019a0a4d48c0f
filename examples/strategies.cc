// SPDX-License-Identifier: Apache-2.0
// The first programs of guides to distribution strategies: Dense(1) on constants, with compile and
// fit, and 100 samples in batches of 10, which two replicas share as 5 + 5; the same once more in a
// loop of its own, for a given number of steps. Run it with --strategy mirrored --replicas 2.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <ronde/trainer.hpp>
#include <vector>

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would

namespace {

constexpr std::size_t kSamples = 100;

// How many predictions are those of their sample, which is what `ramp` counts.
std::size_t count_in_order(const Model& model, const Predictions& predicted) {
  const float weight = model.parameters()[0]->value()[0];
  const float bias = model.parameters()[1]->value()[0];
  std::size_t right = 0;
  for (std::size_t i = 0; i < predicted.samples.size(); ++i) {
    const float expected = weight * static_cast<float>(i) + bias;
    if (predicted.samples[i] == i && std::abs(predicted.outputs[i] - expected) < 1e-3F) ++right;
  }
  return right;
}

// Returns the mean loss of the steps, and the most samples that a replica here had in one.
std::pair<double, double> loop(Strategy& strategy, const Dataset& data, std::size_t steps) {
  Sequential model{input({1}), dense(1).named("dense")};
  const Optimizer optimizer(model, sgd(0.1));
  double loss = 0.0;
  double most = 0.0;
  DistributedEpoch batches = strategy.distribute(data).epoch(0);
  for (std::size_t i = 0; i < steps && batches.next(); ++i) {
    const auto losses = strategy.run(
        [&](Replica& here, const Part& part) {
          const Tensor error =
              model(part.inputs) - here.tape().constant(part.inputs.shape(), part.targets);
          const Loss average = compute_average_loss(reshape(error * error, {part.size()}));
          here.minimize(average);
          if (here.local() == 0) most = std::max(most, static_cast<double>(part.size()));
          return static_cast<double>(average.value.item());
        },
        batches.batch());
    loss += strategy.reduce(ReduceOp::kSum, losses) / static_cast<double>(steps);
  }
  return {loss, most};
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t epochs = 5;
  std::size_t each = 0;
  FlagTable flags("strategies", "Dense(1) on constants, under a strategy.");
  flags.add(
      {{"epochs", whole(epochs, 1, 1000), "passes of fit over the 100 samples"},
       {"per-replica", whole(each, 0, kSamples),
        "samples of a replica in a step, whose rate is that of the global batch; 0: 10 samples "
        "for all replicas, at 0.1"}});
  return run_program(argc, argv, flags, [&](Strategy& strategy) {
    const Array ones{{kSamples, 1}, std::vector<float>(kSamples, 1.0F)};
    const std::size_t batch = each == 0 ? 10 : each * strategy.num_replicas_in_sync();
    const double rate =
        each == 0 ? 0.1 : learning_rate_for(batch, {{5, 0.1}, {10, 0.15}, {20, 0.2}, {40, 0.25}});
    Sequential model{dense(1).named("dense")};
    model.compile(sgd(rate), regression_loss, {"mean_absolute_error"});
    const FitResult fitted = model.fit(ones, ones.values, batch, {.epochs = epochs});
    const Metrics scored = model.evaluate(ones, ones.values, batch);

    Array ramp{{kSamples, 1}, std::vector<float>(kSamples)};
    std::iota(ramp.values.begin(), ramp.values.end(), 0.0F);
    const std::size_t in_order = count_in_order(model, model.predict(ramp, batch));
    const Dataset constants = Dataset::from_arrays({1}, ones.values, ones.values).batch(batch);
    const auto [looped, most] = loop(strategy, constants, 5);

    if (!strategy.is_chief()) return 0;
    std::printf("%s: batches of %zu, %g on a replica\n", strategy.name().c_str(), batch, most);
    std::printf(
        "ranks=%zu steps=%ju learning_rate=%g fit_loss=%.3g evaluate_loss=%.3g "
        "mean_absolute_error=%.3g "
        "predicted_in_order=%zu loop_loss=%.6f param_hash=%s\n",
        strategy.num_replicas_in_sync(), std::uintmax_t{fitted.steps}, rate, fitted.training.loss(),
        scored.loss(), scored.mean("mean_absolute_error"), in_order, looped,
        model.parameter_hash().c_str());
    return 0;
  });
}
