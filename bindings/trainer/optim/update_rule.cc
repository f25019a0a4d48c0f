// SPDX-License-Identifier: Apache-2.0
// The loops are plain, so that compilers vectorise them. Factors are computed in double precision
// and rounded once; the arithmetic on elements is f32, the same on every rank.
#include "bindings/trainer/optim/update_rule.h"

#include <cmath>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

using Kind = RuleOptions::Kind;

void require(bool holds, const char* option, double value, const char* allowed) {
  if (holds) return;
  throw TrainerError(std::string("the optimiser's ") + option + " is " + exact_text(value) +
                     ": use " + allowed);
}

// Whether it lies from 0 to below 1; false for NaN.
bool is_share(double value) { return value >= 0.0 && value < 1.0; }

std::vector<std::string> names_of_moments(const RuleOptions& options) {
  if (options.kind != Kind::kSgd) return {"moment1", "moment2"};
  return options.momentum == 0.0 ? std::vector<std::string>{}
                                 : std::vector<std::string>{"velocity"};
}

}  // namespace

UpdateRule::UpdateRule(const RuleOptions& options, std::vector<Parameter*> parameters)
    : options_(options),
      decay_(options.weight_decay.value_or(options.kind == Kind::kAdamW ? 0.01 : 0.0)),
      parameters_(std::move(parameters)),
      names_(names_of_moments(options)),
      moments_(names_.size()) {
  if (options.kind == Kind::kSgd) {
    require(is_share(options.momentum), "momentum", options.momentum, "one from 0 to below 1");
  } else {
    require(is_share(options.beta1), "beta1", options.beta1, "one from 0 to below 1");
    require(is_share(options.beta2), "beta2", options.beta2, "one from 0 to below 1");
    require(options.epsilon > 0.0 && std::isfinite(options.epsilon), "epsilon", options.epsilon,
            "one above 0");
  }
  require(decay_ >= 0.0 && std::isfinite(decay_), "weight decay", decay_, "a number from 0");
  if (options.kind == Kind::kSgd && options.nesterov && options.momentum == 0.0) {
    throw TrainerError("Nesterov's step needs momentum, which is 0: use one above 0, such as 0.9");
  }
  for (auto& moment : moments_) {
    for (const Parameter* parameter : parameters_) moment.emplace_back(parameter->size(), 0.0F);
  }
}

void UpdateRule::step(double learning_rate) {
  ++steps_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (whose_ == nullptr) update(i, 0, parameters_[i]->gradient(), learning_rate);
    parameters_[i]->changed();
  }
}

void UpdateRule::step_by(const std::function<std::span<const float>(std::size_t)>& next,
                         double learning_rate) {
  ++steps_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (std::size_t at = 0; at < parameters_[i]->size();) {
      const std::span<const float> gradients = next(parameters_[i]->size() - at);
      update(i, at, gradients, learning_rate);
      at += gradients.size();
    }
    parameters_[i]->changed();
  }
}

void UpdateRule::read_state_of(UpdateRule& other) {
  whose_ = &other;
  moments_.clear();
}

void UpdateRule::step_rows(std::span<const std::int64_t> rows, std::span<const float> gradients,
                           double learning_rate) {
  ++steps_;
  const std::size_t width = parameters_.front()->shape().at(1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    update(0, static_cast<std::size_t>(rows[i]) * width, gradients.subspan(i * width, width),
           learning_rate);
  }
  parameters_.front()->changed();
}

std::vector<StateTensor> UpdateRule::state() {
  if (whose_ != nullptr) return whose_->state();
  std::vector<StateTensor> tensors;
  for (std::size_t kind = 0; kind < names_.size(); ++kind) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = *parameters_[i];
      tensors.push_back(
          {names_[kind] + "/" + parameter.name(), parameter.shape(), moments_[kind][i]});
    }
  }
  return tensors;
}

std::string UpdateRule::settings() const {
  const std::string decay = ", weight decay " + number_text(decay_);
  if (options_.kind == Kind::kSgd) {
    return std::string("sgd with ") + (options_.nesterov ? "Nesterov's momentum " : "momentum ") +
           number_text(options_.momentum) + decay;
  }
  return std::string(options_.kind == Kind::kAdamW ? "adamw" : "adam") + " with beta1 " +
         number_text(options_.beta1) + ", beta2 " + number_text(options_.beta2) + ", epsilon " +
         number_text(options_.epsilon) + decay;
}

void UpdateRule::update(std::size_t i, std::size_t at, std::span<const float> gradients,
                        double rate) {
  float* const value = parameters_[i]->value().data() + at;
  const auto moment = [&](std::size_t kind) {
    return kind < moments_.size() ? moments_[kind][i].data() + at : nullptr;
  };
  if (options_.kind == Kind::kSgd) return descend(value, moment(0), gradients, rate);
  adapt(value, moment(0), moment(1), gradients, rate);
}

void UpdateRule::descend(float* value, float* velocity, std::span<const float> gradients,
                         double learning_rate) const {
  const auto rate = static_cast<float>(learning_rate);
  const auto decay = static_cast<float>(decay_);
  const auto momentum = static_cast<float>(options_.momentum);
  const float* const gradient = gradients.data();
  const std::size_t size = gradients.size();
  if (velocity == nullptr) {
    for (std::size_t i = 0; i < size; ++i) value[i] -= rate * (gradient[i] + decay * value[i]);
    return;
  }
  if (options_.nesterov) {
    for (std::size_t i = 0; i < size; ++i) {
      const float g = gradient[i] + decay * value[i];
      const float v = momentum * velocity[i] + g;
      velocity[i] = v;
      value[i] -= rate * (g + momentum * v);
    }
    return;
  }
  for (std::size_t i = 0; i < size; ++i) {
    const float v = momentum * velocity[i] + (gradient[i] + decay * value[i]);
    velocity[i] = v;
    value[i] -= rate * v;
  }
}

// steps() counts this step already.
void UpdateRule::adapt(float* value, float* moment1, float* moment2,
                       std::span<const float> gradients, double learning_rate) const {
  const auto t = static_cast<double>(steps_);
  const double correction1 = 1.0 - std::pow(options_.beta1, t);
  const double correction2 = 1.0 - std::pow(options_.beta2, t);
  const bool decoupled = options_.kind == Kind::kAdamW;
  const auto decay = static_cast<float>(decoupled ? 0.0 : decay_);
  const auto keep = static_cast<float>(decoupled ? 1.0 - learning_rate * decay_ : 1.0);
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rest1 = static_cast<float>(1.0 - options_.beta1);
  const auto rest2 = static_cast<float>(1.0 - options_.beta2);
  const auto rate = static_cast<float>(learning_rate / correction1);
  const auto root = static_cast<float>(1.0 / std::sqrt(correction2));
  const auto epsilon = static_cast<float>(options_.epsilon);
  const float* const gradient = gradients.data();
  const std::size_t size = gradients.size();
  for (std::size_t i = 0; i < size; ++i) {
    const float g = gradient[i] + decay * value[i];
    const float m = beta1 * moment1[i] + rest1 * g;
    const float v = beta2 * moment2[i] + rest2 * g * g;
    moment1[i] = m;
    moment2[i] = v;
    value[i] = keep * value[i] - rate * m / (std::sqrt(v) * root + epsilon);
  }
}

}  // namespace ronde::trainer
