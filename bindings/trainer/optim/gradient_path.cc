// SPDX-License-Identifier: Apache-2.0
// The two ways of gradients between replicas that take the same step.
#include "bindings/trainer/optim/gradient_path.h"

#include <limits>
#include <utility>
#include <vector>

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
      : averager_(engine, ronde::sum, AllreduceOptions{.compression = options.wire},
                  averager_options(options)),
        seed_(options.shuffle_seed),
        rank_(static_cast<std::uint64_t>(engine.rank())) {
    for (const Parameter* const one : parameters) {
      (void)averager_.add("gradient/" + one->name(), one->gradient());  // numbers them in order
    }
  }

  void begin_step(std::optional<std::uint64_t> number) override {
    if (number) averager_.begin_step(*number);
  }
  void ready(std::size_t parameter) override {
    if (seed_ == 0) return averager_.ready(parameter);
    held_back_.push_back(parameter);
  }
  void end_step() override {
    shuffle(std::span(held_back_), seed_ + rank_, steps_++);
    for (const GradientAverager::Id id : held_back_) averager_.ready(id);
    held_back_.clear();
    averager_.wait();
  }
  [[nodiscard]] AveragerStatistics averaging() const override { return averager_.statistics(); }

 private:
  GradientAverager averager_;
  const std::uint64_t seed_;
  const std::uint64_t rank_;
  std::uint64_t steps_ = 0;
  std::vector<GradientAverager::Id> held_back_;
};

class Summed final : public GradientPath {
 public:
  explicit Summed(std::function<void()> sum) : sum_(std::move(sum)) {}
  void end_step() override { sum_(); }

 private:
  std::function<void()> sum_;
};

}  // namespace

std::unique_ptr<GradientPath> averaged_path(Engine& engine, std::span<Parameter* const> parameters,
                                            const OptimizerOptions& options) {
  return std::make_unique<Averaged>(engine, parameters, options);
}

std::unique_ptr<GradientPath> summed_path(std::function<void()> sum) {
  return std::make_unique<Summed>(std::move(sum));
}

}  // namespace ronde::trainer
