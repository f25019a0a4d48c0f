// SPDX-License-Identifier: Apache-2.0
// Steps down the gradient, on one rank. The formulae are those of torch.optim.SGD, Adam and AdamW
// (PyTorch 2), so that its users find the learning rates that they know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/tensor/parameter.h"

namespace ronde::trainer {

// What all optimisers have in common: parameters, and numbers that are kept for each of them from
// step to step (the moments), which begin as zeros.
//
// Thread safety: belongs to the thread of its model.
class UpdateRule {
 public:
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;
  virtual ~UpdateRule() = default;

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
  // Which optimiser it is, with its options: what a training must have in common to go on.
  [[nodiscard]] virtual std::string settings() const { return ""; }

 protected:
  // A parameter as the loops of an update see it: `size` numbers at each place.
  struct Update {
    std::size_t size;
    float* value;
    const float* gradient;
    std::vector<float*> moments;  // in the order of the constructor's names
  };

  // The parameters must outlive this object. `moments` names what is kept for each parameter.
  UpdateRule(std::vector<Parameter*> parameters, std::vector<std::string> moments);
  // Updates one parameter; steps() counts this step already.
  virtual void update(const Update& update, double learning_rate) const = 0;

 private:
  std::vector<Parameter*> parameters_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::vector<float>>> moments_;  // by name, then by parameter
  std::uint64_t steps_ = 0;
  UpdateRule* whose_ = nullptr;  // state this reads
};

struct SgdOptions {
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
};

// Stochastic gradient descent:
//   g = gradient + weight_decay * value
//   velocity = momentum * velocity + g;  g = nesterov ? g + momentum * velocity : velocity
//   value -= learning_rate * g
class Sgd final : public UpdateRule {
 public:
  // Throws TrainerError for options that make no sense, in one line.
  explicit Sgd(std::vector<Parameter*> parameters, const SgdOptions& options = {});
  [[nodiscard]] std::string settings() const override;

 private:
  void update(const Update& update, double learning_rate) const override;

  SgdOptions options_;
};

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

// Adam (Kingma, Ba 2015), with weight decay as a part of the gradient:
//   g = gradient + weight_decay * value
//   moment1 = beta1 * moment1 + (1 - beta1) * g;  moment2 = beta2 * moment2 + (1 - beta2) * g * g
//   value -= learning_rate / (1 - beta1^t) * moment1 / (sqrt(moment2 / (1 - beta2^t)) + epsilon)
// in step t, from 1.
class Adam : public UpdateRule {
 public:
  // Throws TrainerError for options that make no sense, in one line.
  explicit Adam(std::vector<Parameter*> parameters, const AdamOptions& options = {});
  [[nodiscard]] std::string settings() const override;

 protected:
  // How weights decay: as a part of the gradient, or beside it.
  enum class Decay : std::uint8_t { kInGradient, kDecoupled };
  Adam(std::vector<Parameter*> parameters, const AdamOptions& options, Decay decay);

 private:
  void update(const Update& update, double learning_rate) const override;

  AdamOptions options_;
  Decay decay_;
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// AdamW (Loshchilov, Hutter 2019): Adam without decay in the gradient, but first
//   value *= 1 - learning_rate * weight_decay
class AdamW final : public Adam {
 public:
  explicit AdamW(std::vector<Parameter*> parameters, const AdamWOptions& options = {});
};

// Which optimiser, and what it needs: for a program that lets its user choose.
struct RuleOptions {
  enum class Kind : std::uint8_t { kSgd, kAdam, kAdamW };

  Kind kind = Kind::kSgd;
  double momentum = 0.0;  // this and the next for SGD
  bool nesterov = false;
  double beta1 = 0.9;  // these three for Adam and AdamW
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<double> weight_decay{};  // none: the optimiser's default
};

// Throws TrainerError for options that make no sense, in one line.
[[nodiscard]] std::unique_ptr<UpdateRule> make_rule(const RuleOptions& options,
                                                    std::vector<Parameter*> parameters);

}  // namespace ronde::trainer
