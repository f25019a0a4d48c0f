// SPDX-License-Identifier: Apache-2.0
// Recording operations, and the way back.
#include "bindings/trainer/tensor/tape.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/kernels.h"

namespace ronde::trainer {

// An operation with its result, or a leaf: a variable or a parameter. Operations come in the order
// in which they ran, so that all consumers of a result lie behind it.
struct Tape::Node {
  const char* operation = "";
  std::vector<std::size_t> inputs;  // their nodes; Tensor::kNoNode where no gradient is wanted
  BackwardFunction backward;        // empty: a leaf
  Parameter* parameter = nullptr;
  Values output;
  Values gradient;                // of the loss by the output, as far as it is known
  bool used = false;              // some operation has this as an input
  bool lent = false;              // the parameter's own memory, for its gradient
  std::vector<std::size_t> last;  // the leaves that no earlier operation uses
};

const Values& Backward::gradient() const { return tape_.nodes_[node_].gradient; }

Values Backward::plain_gradient() const { return tape_.plain(gradient()); }

bool Backward::wants(std::size_t input) const {
  return tape_.nodes_[node_].inputs[input] != Tensor::kNoNode;
}

Values Backward::room(std::size_t input) const {
  Tape::Node& target = tape_.nodes_[tape_.nodes_[node_].inputs[input]];
  const Parameter* const parameter = target.parameter;
  if (parameter != nullptr && !parameter->has_gradient() && !target.lent) {
    target.lent = true;
    return parameter->gradient_values();
  }
  return Values::make(tape_.pool_, target.output.shape);
}

void Backward::give(std::size_t input, Values gradient) {
  Tape::Node& target = tape_.nodes_[tape_.nodes_[node_].inputs[input]];
  if (gradient.shape != target.output.shape) {
    throw TrainerError(std::string("the gradient of ") + tape_.nodes_[node_].operation +
                       " by input " + std::to_string(input) + " is " + text_of(gradient.shape) +
                       ", not " + text_of(target.output.shape) +
                       ": this is a defect of the operation");
  }
  if (target.gradient.empty()) {
    target.gradient = std::move(gradient);
  } else {
    target.gradient = tape_.kernels_->add(target.gradient, gradient);
  }
}

void Backward::finish(std::size_t input) {
  Tape::Node& node = tape_.nodes_[node_];
  const std::size_t leaf = node.inputs[input];
  // The same parameter as another input may have more to come.
  if (std::ranges::count(node.inputs, leaf) != 1) return;
  if (std::erase(node.last, leaf) != 0) tape_.finish_gradient(tape_.nodes_[leaf]);
}

Tape::Tape(int threads) : kernels_(std::make_unique<Kernels>(pool_, threads)) {}
Tape::~Tape() = default;

void Tape::begin(const Pass& pass) {
  pass_ = pass;
  ++pass_number_;
  way_ = Way::kForward;
  nodes_.clear();
  used_.clear();
  statistics_.clear();
  drawn_.clear();
  read_.clear();
  pool_.begin_pass();
  kernels_->begin_pass();
}

Tensor Tape::constant(Shape shape, std::span<const float> values) {
  Values copy = Values::make(pool_, std::move(shape));
  if (copy.size() != values.size()) {
    throw TrainerError(std::to_string(values.size()) + " numbers make no tensor of " +
                       text_of(copy.shape) + ": give as many as its sides say");
  }
  std::ranges::copy(values, copy.data());
  return {*this, pass_number_, "constant", std::move(copy), Tensor::kNoNode};
}

Tensor Tape::borrow(Shape shape, std::span<const float> values) {
  // Operations never write into their inputs.
  const std::span<float> memory(const_cast<float*>(values.data()), values.size());
  return {*this, pass_number_, "borrow", Values::over(std::move(shape), memory), Tensor::kNoNode};
}

Tensor Tape::variable(Shape shape, std::span<const float> values) {
  return add_leaf(constant(std::move(shape), values).raw(), nullptr);
}

Tensor Tape::use(Parameter& parameter) {
  for (const Used& known : used_) {
    if (known.parameter != &parameter) continue;
    return {*this, pass_number_, "parameter", parameter.value_values(), known.node};
  }
  Tensor tensor = add_leaf(parameter.value_values(), &parameter);
  used_.push_back({&parameter, tensor.node(), parameter.version()});
  return tensor;
}

void Tape::use_statistics(const StateTensor& statistics) {
  const auto is_known = [&](const StateTensor& one) {
    return one.values.data() == statistics.values.data();
  };
  if (std::ranges::none_of(statistics_, is_known)) statistics_.push_back(statistics);
}

std::vector<Parameter*> Tape::used_parameters() const {
  std::vector<Parameter*> parameters;
  parameters.reserve(used_.size());
  for (const Used& used : used_) parameters.push_back(used.parameter);
  return parameters;
}

Tensor Tape::add_leaf(Values values, Parameter* parameter) {
  const char* const name = parameter == nullptr ? "variable" : "parameter";
  if (!pass_.training) return {*this, pass_number_, name, std::move(values), Tensor::kNoNode};
  Node& leaf = nodes_.emplace_back();
  leaf.operation = name;
  leaf.parameter = parameter;
  leaf.output = values;
  return {*this, pass_number_, name, std::move(values), nodes_.size() - 1};
}

Tensor Tape::record(const char* operation, Values output, std::initializer_list<Tensor> inputs,
                    BackwardFunction backward) {
  return record(operation, std::move(output), std::span(inputs.begin(), inputs.size()),
                std::move(backward));
}

Tensor Tape::record(const char* operation, Values output, std::span<const Tensor> inputs,
                    BackwardFunction backward) {
  for (const Tensor& input : inputs) {
    if (&input.tape() != this) {
      throw TrainerError(std::string("the inputs of ") + operation +
                         " lie on different tapes: make them on one");
    }
  }
  if (std::ranges::none_of(inputs, &Tensor::needs_gradient)) {
    return {*this, pass_number_, operation, std::move(output), Tensor::kNoNode};
  }
  Node node;
  node.operation = operation;
  node.backward = std::move(backward);
  node.output = output;
  for (const Tensor& input : inputs) {
    node.inputs.push_back(input.node());
    if (!input.needs_gradient()) continue;
    Node& from = nodes_[input.node()];
    if (from.parameter != nullptr && !from.used) node.last.push_back(input.node());
    from.used = true;
  }
  nodes_.push_back(std::move(node));
  return {*this, pass_number_, operation, std::move(output), nodes_.size() - 1};
}

void Tape::require_backward(const Tensor& loss) const {
  if (&loss.tape() != this) {
    throw TrainerError("the loss lies on another tape: go back over the one that it was made on");
  }
  if (loss.size() != 1) {
    throw TrainerError("backward() starts from one number, not from a tensor of " +
                       text_of(loss.shape()) + ": take its sum or mean");
  }
  if (!loss.needs_gradient()) {
    throw TrainerError(
        "the loss depends on no parameter of this tape: use the parameters with Tape::use(), in a "
        "pass for training");
  }
  if (way_ != Way::kForward) {
    throw TrainerError(
        "backward() has gone over this pass: add the losses up and go back once, or begin() anew");
  }
  for (const Used& used : used_) {
    if (used.parameter->version() == used.version) continue;
    throw TrainerError(
        used.parameter->name() +
        " has changed since this pass used it: its gradient would be that of neither "
        "value: go back before the optimiser steps, or begin() anew");
  }
}

void Tape::backward(const Tensor& loss, const GradientReady& ready) {
  require_backward(loss);
  way_ = Way::kBack;
  ready_ = ready;
  Values one = Values::make(pool_, loss.shape());
  one.plain()[0] = 1.0F;
  nodes_[loss.node()].gradient = std::move(one);
  for (std::size_t i = loss.node() + 1; i-- > 0;) {
    if (nodes_[i].backward && !nodes_[i].gradient.empty()) {
      Backward step(*this, i);
      nodes_[i].backward(step);
      // Memory goes back to the pool at once: what lies before needs it next.
      nodes_[i].gradient = {};
    }
    nodes_[i].backward = nullptr;
    for (const std::size_t leaf : nodes_[i].last) finish_gradient(nodes_[leaf]);
  }
  if (nodes_[loss.node()].parameter != nullptr) finish_gradient(nodes_[loss.node()]);
  ready_ = nullptr;
  forget_earlier_steps();
  way_ = Way::kDone;
}

void Tape::finish_gradient(Node& leaf) {
  if (leaf.gradient.empty()) return;  // the loss does not depend on it
  Parameter& parameter = *leaf.parameter;
  const Values gradient = plain(leaf.gradient);
  leaf.gradient = {};
  const std::span<float> total = parameter.gradient();
  if (gradient.data() == total.data()) {
    // An operation has written it where it lives.
  } else if (parameter.has_gradient()) {
    const float* const more = gradient.data();
    float* const sums = total.data();
    for (std::size_t i = 0; i < total.size(); ++i) sums[i] += more[i];
  } else {
    std::ranges::copy(gradient.plain(), total.begin());
  }
  if (!parameter.has_gradient()) written_.push_back({parameter.handle(), parameter.step()});
  parameter.set_has_gradient();
  if (ready_) ready_(parameter);
}

// Gradients belong to a step: what is there of an earlier one would be summed and stepped by again.
void Tape::forget_earlier_steps() {
  std::erase_if(written_, [](const Written& one) {
    const std::shared_ptr<Parameter> parameter = one.parameter.lock();
    if (parameter != nullptr && parameter->step() == one.step) return false;
    if (parameter != nullptr && !parameter->has_gradient()) {
      std::ranges::fill(parameter->gradient(), 0.0F);
    }
    return true;
  });
}

std::vector<float> Tape::gradient(const Tensor& variable) {
  const bool ours = &variable.tape() == this && variable.needs_gradient();
  if (!ours || !nodes_[variable.node()].inputs.empty() ||
      nodes_[variable.node()].parameter != nullptr) {
    throw TrainerError(std::string("the gradient by ") + variable.operation_ + " (" +
                       text_of(variable.shape()) +
                       ") is not kept: ask for that of a variable() of this tape, made for "
                       "training, or read Parameter::gradient()");
  }
  if (way_ != Way::kDone) {
    throw TrainerError("there are no gradients before backward(): call it first");
  }
  const Values& gradient = nodes_[variable.node()].gradient;
  if (gradient.empty()) return std::vector<float>(variable.size(), 0.0F);
  const Values in_order = plain(gradient);
  return {in_order.plain().begin(), in_order.plain().end()};
}

Values Tape::plain(const Values& values) {
  return values.layout == nullptr ? values : kernels_->plain(values);
}

std::span<const float> Tape::read(const Tensor& tensor) {
  const Values& from = tensor.raw();
  Read& read = read_[from.data()];
  if (read.from.empty()) read = {from, plain(from)};
  return {read.plain.data(), from.size()};
}

std::uint64_t Tape::drawn(std::uint64_t layer) {
  for (auto& [known, times] : drawn_) {
    if (known == layer) return ++times;
  }
  drawn_.emplace_back(layer, 0);
  return 0;
}

std::size_t Tensor::side(std::size_t i) const {
  if (i >= shape().size()) {
    throw TrainerError("a tensor of " + text_of(shape()) + " has no side " + std::to_string(i) +
                       ": sides count from 0");
  }
  return shape()[i];
}

float Tensor::item() const {
  if (size() != 1) {
    throw TrainerError("a tensor of " + text_of(shape()) +
                       " is no single number: read it with values()");
  }
  return values()[0];
}

Tape& Tensor::tape() const {
  if (tape_ == nullptr) {
    throw TrainerError("an empty tensor lies on no tape: make one with Tape::constant()");
  }
  if (pass_ != tape_->pass_number_) {
    const std::string name = tape_->name_of(*this);
    throw TrainerError((name.empty() ? operation_ : name) + " (" + text_of(shape()) +
                       ") is a tensor of pass " + std::to_string(pass_) +
                       " of its tape, which is in pass " + std::to_string(tape_->pass_number_) +
                       ": make it again after begin(), from numbers that you have kept");
  }
  return *tape_;
}

const Values& Tensor::raw() const {
  static_cast<void>(tape());
  return values_;
}

std::span<const float> Tensor::values() const { return tape().read(*this); }

std::string Tape::name_of_node(std::size_t index) const {
  const Node& node = nodes_[index];
  if (node.parameter != nullptr) return node.parameter->name();
  for (const std::size_t input : node.inputs) {
    if (input == Tensor::kNoNode || nodes_[input].parameter == nullptr) continue;
    return std::string(node.operation) + " with " + nodes_[input].parameter->name();
  }
  return node.operation;
}

std::string Tape::name_of(const Tensor& tensor) const {
  if (tensor.needs_gradient() && tensor.pass_ == pass_number_) return name_of_node(tensor.node());
  for (const Used& used : used_) {
    if (used.parameter->value().data() == tensor.values_.data()) return used.parameter->name();
  }
  return "";
}

std::string Tape::first_not_finite() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const Values values = plain(node.output);
    if (std::ranges::all_of(values.plain(), [](float value) { return std::isfinite(value); })) {
      continue;
    }
    const std::string name = name_of_node(i);
    return name == node.operation ? name + ", operation " + std::to_string(i) : name;
  }
  return "";
}

}  // namespace ronde::trainer
