// SPDX-License-Identifier: Apache-2.0
// Steps down the gradient, on one rank. The formulae are those of torch.optim.SGD, Adam and AdamW
// (PyTorch 2), so that its users find the learning rates that they know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

struct RuleOptions {
  // Stochastic gradient descent:
  //   g = gradient + weight_decay * value
  //   velocity = momentum * velocity + g;  g = nesterov ? g + momentum * velocity : velocity
  //   value -= learning_rate * g
  // Adam (Kingma, Ba 2015), with weight decay as a part of the gradient; in step t, from 1:
  //   g = gradient + weight_decay * value
  //   moment1 = beta1 * moment1 + (1 - beta1) * g;  moment2 = beta2 * moment2 + (1 - beta2) * g * g
  //   value -= learning_rate / (1 - beta1^t) * moment1 / (sqrt(moment2 / (1 - beta2^t)) + epsilon)
  // AdamW (Loshchilov, Hutter 2019): Adam without decay in the gradient, but first
  //   value *= 1 - learning_rate * weight_decay
  enum class Kind : std::uint8_t { kSgd, kAdam, kAdamW };

  Kind kind = Kind::kSgd;
  double momentum = 0.0;  // this and the next for SGD
  bool nesterov = false;
  double beta1 = 0.9;  // these three for Adam and AdamW
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<double> weight_decay{};  // none: 0.01 for AdamW, and 0 for the others
};

// Parameters, and numbers that are kept for each of them from step to step (the moments), which
// begin as zeros.
//
// Thread safety: belongs to the thread of its model.
class UpdateRule {
 public:
  // The parameters must outlive this object. Throws TrainerError for options that make no sense, in
  // one line.
  UpdateRule(const RuleOptions& options, std::vector<Parameter*> parameters);
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  // Updates every parameter by its gradient. One that no pass of the step has used (on any rank, if
  // gradients are summed) has zeros there, and is moved by its moments and decay alone.
  void step(double learning_rate);
  // The same by these gradients, those of all parameters one after the other: next(n) returns the
  // next ones, at most n and at least one.
  void step_by(const std::function<std::span<const float>(std::size_t)>& next,
               double learning_rate);
  // Updates some rows of the first parameter, {rows, width}, alone, by a gradient of `width`
  // numbers for each: the others keep their values and their moments. Each row at most once, and
  // there.
  void step_rows(std::span<const std::int64_t> rows, std::span<const float> gradients,
                 double learning_rate);

  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }
  // The moments, such as "velocity/fc1/weight": with the parameters and steps() all that a
  // checkpoint needs. The memory belongs to this object.
  [[nodiscard]] std::vector<StateTensor> state();
  // For a rank whose parameters are another one's, in the same memory: state() is that of `other`
  // from now on, which must outlive this, and step() counts, and updates nothing.
  void read_state_of(UpdateRule& other);
  // How many steps the moments have seen: Adam corrects by it.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  void set_steps(std::uint64_t steps) noexcept { steps_ = steps; }
  // The rule with its options: what a training must have in common to go on.
  [[nodiscard]] std::string settings() const;

 private:
  // Updates the numbers of parameter `i` from `at` on by as many gradients.
  void update(std::size_t i, std::size_t at, std::span<const float> gradients, double rate);
  void descend(float* value, float* velocity, std::span<const float> gradients, double rate) const;
  void adapt(float* value, float* moment1, float* moment2, std::span<const float> gradients,
             double rate) const;

  const RuleOptions options_;
  const double decay_;
  std::vector<Parameter*> parameters_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::vector<float>>> moments_;  // by name, then by parameter
  std::uint64_t steps_ = 0;
  UpdateRule* whose_ = nullptr;  // state this reads
};

}  // namespace ronde::trainer
