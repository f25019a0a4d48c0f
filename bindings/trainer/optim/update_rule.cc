// SPDX-License-Identifier: Apache-2.0
// The loops are plain, so that compilers vectorise them. Factors are computed in double precision
// and rounded once; the arithmetic on elements is f32, the same on every rank.
#include "bindings/trainer/optim/update_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

void require(bool holds, const char* option, double value, const char* allowed) {
  if (holds) return;
  throw TrainerError(std::string("the optimiser's ") + option + " is " + exact_text(value) +
                     ": use " + allowed);
}

// Whether it lies from 0 to below 1; false for NaN.
bool is_share(double value) { return value >= 0.0 && value < 1.0; }

void require_decay(double decay) {
  require(decay >= 0.0 && std::isfinite(decay), "weight decay", decay, "a number from 0");
}

}  // namespace

UpdateRule::UpdateRule(std::vector<Parameter*> parameters, std::vector<std::string> moments)
    : parameters_(std::move(parameters)), names_(std::move(moments)), moments_(names_.size()) {
  for (auto& moment : moments_) {
    for (const Parameter* parameter : parameters_) moment.emplace_back(parameter->size(), 0.0F);
  }
}

void UpdateRule::step(double learning_rate) {
  ++steps_;
  if (whose_ != nullptr) {
    for (Parameter* const parameter : parameters_) parameter->changed();
    return;
  }
  Update one{0, nullptr, nullptr, std::vector<float*>(moments_.size())};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    one.size = parameter.size();
    one.value = parameter.value().data();
    one.gradient = parameter.gradient().data();
    std::ranges::transform(moments_, one.moments.begin(),
                           [i](auto& kind) { return kind[i].data(); });
    update(one, learning_rate);
    parameter.changed();
  }
}

void UpdateRule::step_by(const std::function<std::span<const float>(std::size_t)>& next,
                         double learning_rate) {
  ++steps_;
  Update one{0, nullptr, nullptr, std::vector<float*>(moments_.size())};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    for (std::size_t at = 0; at < parameter.size(); at += one.size) {
      const auto gradient = next(parameter.size() - at);
      one.size = gradient.size();
      one.value = parameter.value().data() + at;
      one.gradient = gradient.data();
      std::ranges::transform(moments_, one.moments.begin(),
                             [i, at](auto& kind) { return kind[i].data() + at; });
      update(one, learning_rate);
    }
    parameter.changed();
  }
}

void UpdateRule::read_state_of(UpdateRule& other) {
  whose_ = &other;
  moments_.clear();
}

void UpdateRule::step_rows(std::span<const std::int64_t> rows, std::span<const float> gradients,
                           double learning_rate) {
  ++steps_;
  Parameter& parameter = *parameters_.front();
  const std::size_t width = parameter.shape().at(1);
  Update one{width, nullptr, gradients.data(), std::vector<float*>(moments_.size())};
  for (const std::int64_t row : rows) {
    const std::size_t at = static_cast<std::size_t>(row) * width;
    one.value = parameter.value().data() + at;
    std::ranges::transform(moments_, one.moments.begin(),
                           [at](auto& kind) { return kind[0].data() + at; });
    update(one, learning_rate);
    one.gradient += width;
  }
  parameter.changed();
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

Sgd::Sgd(std::vector<Parameter*> parameters, const SgdOptions& options)
    : UpdateRule(std::move(parameters), options.momentum == 0.0
                                            ? std::vector<std::string>{}
                                            : std::vector<std::string>{"velocity"}),
      options_(options) {
  require(is_share(options.momentum), "momentum", options.momentum, "one from 0 to below 1");
  require_decay(options.weight_decay);
  if (options.nesterov && options.momentum == 0.0) {
    throw TrainerError("Nesterov's step needs momentum, which is 0: use one above 0, such as 0.9");
  }
}

std::string Sgd::settings() const {
  return std::string("sgd with ") + (options_.nesterov ? "Nesterov's momentum " : "momentum ") +
         number_text(options_.momentum) + ", weight decay " + number_text(options_.weight_decay);
}

void Sgd::update(const Update& update, double learning_rate) const {
  const auto rate = static_cast<float>(learning_rate);
  const auto decay = static_cast<float>(options_.weight_decay);
  const auto momentum = static_cast<float>(options_.momentum);
  float* const value = update.value;
  const float* const gradient = update.gradient;
  if (update.moments.empty()) {
    for (std::size_t i = 0; i < update.size; ++i) {
      value[i] -= rate * (gradient[i] + decay * value[i]);
    }
    return;
  }
  float* const velocity = update.moments[0];
  if (options_.nesterov) {
    for (std::size_t i = 0; i < update.size; ++i) {
      const float g = gradient[i] + decay * value[i];
      const float v = momentum * velocity[i] + g;
      velocity[i] = v;
      value[i] -= rate * (g + momentum * v);
    }
    return;
  }
  for (std::size_t i = 0; i < update.size; ++i) {
    const float v = momentum * velocity[i] + (gradient[i] + decay * value[i]);
    velocity[i] = v;
    value[i] -= rate * v;
  }
}

Adam::Adam(std::vector<Parameter*> parameters, const AdamOptions& options)
    : Adam(std::move(parameters), options, Decay::kInGradient) {}

Adam::Adam(std::vector<Parameter*> parameters, const AdamOptions& options, Decay decay)
    : UpdateRule(std::move(parameters), {"moment1", "moment2"}), options_(options), decay_(decay) {
  require(is_share(options.beta1), "beta1", options.beta1, "one from 0 to below 1");
  require(is_share(options.beta2), "beta2", options.beta2, "one from 0 to below 1");
  require(options.epsilon > 0.0 && std::isfinite(options.epsilon), "epsilon", options.epsilon,
          "one above 0");
  require_decay(options.weight_decay);
}

std::string Adam::settings() const {
  return std::string(decay_ == Decay::kDecoupled ? "adamw" : "adam") + " with beta1 " +
         number_text(options_.beta1) + ", beta2 " + number_text(options_.beta2) + ", epsilon " +
         number_text(options_.epsilon) + ", weight decay " + number_text(options_.weight_decay);
}

void Adam::update(const Update& update, double learning_rate) const {
  const auto t = static_cast<double>(steps());
  const double correction1 = 1.0 - std::pow(options_.beta1, t);
  const double correction2 = 1.0 - std::pow(options_.beta2, t);
  const bool decoupled = decay_ == Decay::kDecoupled;
  const auto decay = static_cast<float>(decoupled ? 0.0 : options_.weight_decay);
  const auto keep =
      static_cast<float>(decoupled ? 1.0 - learning_rate * options_.weight_decay : 1.0);
  const auto beta1 = static_cast<float>(options_.beta1);
  const auto beta2 = static_cast<float>(options_.beta2);
  const auto rest1 = static_cast<float>(1.0 - options_.beta1);
  const auto rest2 = static_cast<float>(1.0 - options_.beta2);
  const auto rate = static_cast<float>(learning_rate / correction1);
  const auto root = static_cast<float>(1.0 / std::sqrt(correction2));
  const auto epsilon = static_cast<float>(options_.epsilon);
  float* const value = update.value;
  const float* const gradient = update.gradient;
  float* const moment1 = update.moments[0];
  float* const moment2 = update.moments[1];
  for (std::size_t i = 0; i < update.size; ++i) {
    const float g = gradient[i] + decay * value[i];
    const float m = beta1 * moment1[i] + rest1 * g;
    const float v = beta2 * moment2[i] + rest2 * g * g;
    moment1[i] = m;
    moment2[i] = v;
    value[i] = keep * value[i] - rate * m / (std::sqrt(v) * root + epsilon);
  }
}

AdamW::AdamW(std::vector<Parameter*> parameters, const AdamWOptions& options)
    : Adam(std::move(parameters),
           {options.beta1, options.beta2, options.epsilon, options.weight_decay},
           Decay::kDecoupled) {}

std::unique_ptr<UpdateRule> make_rule(const RuleOptions& options,
                                      std::vector<Parameter*> parameters) {
  using Kind = RuleOptions::Kind;
  if (options.kind == Kind::kSgd) {
    return std::make_unique<Sgd>(
        std::move(parameters),
        SgdOptions{options.momentum, options.nesterov, options.weight_decay.value_or(0.0)});
  }
  if (options.kind == Kind::kAdam) {
    return std::make_unique<Adam>(std::move(parameters),
                                  AdamOptions{options.beta1, options.beta2, options.epsilon,
                                              options.weight_decay.value_or(0.0)});
  }
  const double decay = options.weight_decay.value_or(AdamWOptions{}.weight_decay);
  return std::make_unique<AdamW>(
      std::move(parameters), AdamWOptions{options.beta1, options.beta2, options.epsilon, decay});
}

}  // namespace ronde::trainer
