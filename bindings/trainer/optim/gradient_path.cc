// SPDX-License-Identifier: Apache-2.0
// The two ways of gradients between replicas that take the same step.
#include "bindings/trainer/optim/gradient_path.h"

#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/random.h"

namespace ronde::trainer {

namespace {

AveragerOptions averager_options(const OptimizerOptions& options) {
  // A bucket that is never full leaves in wait().
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  return {.bucket_bytes = options.overlap ? options.bucket_bytes : kNever};
}

class Averaged final : public GradientPath {
 public:
  Averaged(Engine& engine, std::span<Parameter* const> parameters, const OptimizerOptions& options)
      : engine_(engine),
        parameters_(parameters.begin(), parameters.end()),
        options_(options),
        rank_(static_cast<std::uint64_t>(engine.rank())) {
    make();
  }

  void average_by_weights(bool by_weights) override {
    if (std::exchange(by_weights_, by_weights) != by_weights) make();
  }
  [[nodiscard]] bool by_weights() const override { return by_weights_; }
  int join() override { return averager_->join(); }
  void begin_step(std::optional<std::uint64_t> number, double weight) override {
    if (number) averager_->begin_step(*number);
    if (by_weights_) averager_->weigh(weight);
  }
  void ready(std::size_t parameter) override {
    if (options_.shuffle_seed == 0) return averager_->ready(parameter);
    held_back_.push_back(parameter);
  }
  void end_step() override {
    shuffle(std::span(held_back_), options_.shuffle_seed + rank_, steps_++);
    for (const GradientAverager::Id id : held_back_) averager_->ready(id);
    held_back_.clear();
    averager_->wait();
  }
  [[nodiscard]] AveragerStatistics averaging() const override { return averager_->statistics(); }

 private:
  void make() {
    averager_.emplace(engine_, by_weights_ ? ronde::average : ronde::sum,
                      AllreduceOptions{.compression = options_.wire}, averager_options(options_));
    for (const Parameter* const one : parameters_) {
      (void)averager_->add("gradient/" + one->name(), one->gradient());  // numbers them in order
    }
  }

  Engine& engine_;
  const std::vector<Parameter*> parameters_;
  const OptimizerOptions options_;
  const std::uint64_t rank_;
  bool by_weights_ = false;
  std::optional<GradientAverager> averager_;
  std::uint64_t steps_ = 0;
  std::vector<GradientAverager::Id> held_back_;
};

class Local final : public GradientPath {
 public:
  Local(Engine& engine, std::span<Parameter* const> parameters, std::uint64_t every)
      : engine_(engine), parameters_(parameters.begin(), parameters.end()), every_(every) {}

  void average_by_weights(bool by_weights) override { by_weights_ = by_weights; }
  [[nodiscard]] bool by_weights() const override { return by_weights_; }
  [[nodiscard]] bool is_local() const override { return true; }
  int join() override { return engine_.join(); }
  bool updated(std::uint64_t samples) override {
    samples_ += samples;
    if (++steps_ < every_) return false;
    average();
    return true;
  }
  bool end_epoch() override {
    if (steps_ == 0) return false;
    average();
    return true;
  }
  [[nodiscard]] double waited_seconds() const override { return waited_seconds_; }

 private:
  void average() {
    const auto begin = std::chrono::steady_clock::now();
    const AllreduceOptions by_samples{.weight = static_cast<double>(samples_)};
    std::vector<Work> works;
    works.reserve(parameters_.size());
    for (Parameter* const one : parameters_) {
      works.push_back(
          engine_.allreduce("weights/" + one->name(), one->value(), ronde::average, by_samples));
    }
    for (Work& work : works) work.wait();
    for (Parameter* const one : parameters_) one->changed();
    samples_ = steps_ = 0;
    waited_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Engine& engine_;
  const std::vector<Parameter*> parameters_;
  const std::uint64_t every_;
  bool by_weights_ = false;
  std::uint64_t steps_ = 0;  // since the last average, as are the samples
  std::uint64_t samples_ = 0;
  double waited_seconds_ = 0.0;
};

class Summed final : public GradientPath {
 public:
  explicit Summed(std::function<void()> sum) : sum_(std::move(sum)) {}
  void end_step() override { sum_(); }

 private:
  std::function<void()> sum_;
};

}  // namespace

void GradientPath::average_by_weights(bool by_weights) {
  if (!by_weights) return;
  throw TrainerError(
      "processes with data sets of their own average by numbers of samples, and here gradients go "
      "another way: leave Dataset::own() out, or take a strategy that averages by the engine",
      kExitConfiguration);
}

std::unique_ptr<GradientPath> averaged_path(Engine& engine, std::span<Parameter* const> parameters,
                                            const OptimizerOptions& options) {
  return std::make_unique<Averaged>(engine, parameters, options);
}

std::unique_ptr<GradientPath> local_path(Engine& engine, std::span<Parameter* const> parameters,
                                         std::uint64_t every) {
  return std::make_unique<Local>(engine, parameters, every);
}

std::unique_ptr<GradientPath> summed_path(std::function<void()> sum) {
  return std::make_unique<Summed>(std::move(sum));
}

}  // namespace ronde::trainer
