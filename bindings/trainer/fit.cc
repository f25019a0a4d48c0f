// SPDX-License-Identifier: Apache-2.0
// The training loop: see fit.h.
#include "bindings/trainer/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/errors.h"
#include "bindings/trainer/sampler.h"

namespace ronde::trainer {

namespace {

// Losses are added up in double on the rank and summed over the ranks once per epoch: the mean of
// an epoch depends on the number of ranks only through the order of additions.
double mean_over_ranks(Engine& engine, double sum, std::size_t count) {
  std::array<double, 1> total{sum};
  engine.allreduce_blocking("fit/loss", std::span(total), ronde::sum);
  return total[0] / static_cast<double>(count);
}

}  // namespace

FitResult fit(Engine& engine, Learner& learner, const Dataset& data, const FitOptions& options,
              Progress& progress) {
  FitResult result;
  learner.broadcast_state(0);
  const double waited_before = learner.waited_seconds();
  const std::uint64_t executed_before = engine.statistics().execution_nanoseconds;
  double waited_for_loss = 0.0;
  progress.start();
  for (std::size_t epoch = 0; epoch < options.epochs; ++epoch) {
    const EpochSampler sampler(data.size(), options.global_batch, options.seed, epoch);
    Position position{epoch, options.epochs, 0, data.size()};
    for (std::size_t k = 0; k < sampler.batches(); ++k) {
      const std::size_t global_size = sampler.batch(k).size();
      learner.step(data, sampler.batch(k, engine.rank(), engine.size()), global_size);
      position.images += global_size;
      progress.batch_done(position);
      ++result.steps;
    }
    const double loss_sum = learner.take_loss();
    const double begin = steady_seconds();
    result.train_loss = mean_over_ranks(engine, loss_sum, data.size());
    waited_for_loss += steady_seconds() - begin;
    result.images += data.size();
    progress.epoch_done(position, result.train_loss);
    if (!std::isfinite(result.train_loss)) {
      throw AgreedError("the loss of epoch " + std::to_string(epoch + 1) +
                            " is not a finite number: use a smaller learning rate or momentum",
                        0);
    }
  }
  result.seconds = progress.seconds();
  result.wait_seconds = learner.waited_seconds() - waited_before + waited_for_loss;
  result.transfer_seconds =
      1e-9 * static_cast<double>(engine.statistics().execution_nanoseconds - executed_before);
  return result;
}

double evaluate(Engine& engine, Learner& learner, const Dataset& data) {
  constexpr std::size_t kBatch = 500;
  const Range mine = part_of({0, data.size()}, engine.rank(), engine.size());
  std::array<std::int64_t, 2> sums{0, static_cast<std::int64_t>(mine.size())};
  std::vector<std::uint32_t> samples;
  for (std::size_t first = mine.first; first < mine.last; first += kBatch) {
    samples.resize(std::min(kBatch, mine.last - first));
    std::iota(samples.begin(), samples.end(), static_cast<std::uint32_t>(first));
    sums[0] += learner.count_correct(data, samples);
  }
  engine.allreduce_blocking("evaluate/sums", std::span(sums), ronde::sum);
  return static_cast<double>(sums[0]) / static_cast<double>(sums[1]);
}

}  // namespace ronde::trainer
