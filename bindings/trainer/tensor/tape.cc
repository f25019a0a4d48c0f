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
  std::vector<std::size_t> last;  // the leaves that no earlier operation uses
};

const Values& Backward::gradient() const { return tape_.nodes_[node_].gradient; }

Values Backward::plain_gradient() const { return tape_.plain(gradient()); }

bool Backward::wants(std::size_t input) const {
  return tape_.nodes_[node_].inputs[input] != Tensor::kNoNode;
}

Values Backward::room(std::size_t input) const {
  const Tape::Node& target = tape_.nodes_[tape_.nodes_[node_].inputs[input]];
  const Parameter* const parameter = target.parameter;
  if (parameter != nullptr && !parameter->has_gradient() && target.gradient.empty()) {
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
  went_back_ = false;
  nodes_.clear();
  used_.clear();
  statistics_.clear();
  read_.clear();
}

Tensor Tape::constant(Shape shape, std::span<const float> values) {
  Values copy = Values::make(pool_, std::move(shape));
  if (copy.size() != values.size()) {
    throw TrainerError(std::to_string(values.size()) + " numbers make no tensor of " +
                       text_of(copy.shape) + ": give as many as its sides say");
  }
  std::ranges::copy(values, copy.data());
  return {*this, std::move(copy), Tensor::kNoNode};
}

Tensor Tape::borrow(Shape shape, std::span<const float> values) {
  // Operations never write into their inputs.
  const std::span<float> memory(const_cast<float*>(values.data()), values.size());
  return {*this, Values::over(std::move(shape), memory), Tensor::kNoNode};
}

Tensor Tape::variable(Shape shape, std::span<const float> values) {
  return add_leaf(constant(std::move(shape), values).raw(), nullptr);
}

Tensor Tape::use(Parameter& parameter) {
  for (const auto& [known, node] : used_) {
    if (known == &parameter) return {*this, parameter.value_values(), node};
  }
  Tensor tensor = add_leaf(parameter.value_values(), &parameter);
  used_.emplace_back(&parameter, tensor.node());
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
  for (const auto& [parameter, node] : used_) parameters.push_back(parameter);
  return parameters;
}

Tensor Tape::add_leaf(Values values, Parameter* parameter) {
  if (!pass_.training) return {*this, std::move(values), Tensor::kNoNode};
  Node& leaf = nodes_.emplace_back();
  leaf.operation = parameter == nullptr ? "variable" : "parameter";
  leaf.parameter = parameter;
  leaf.output = values;
  return {*this, std::move(values), nodes_.size() - 1};
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
    return {*this, std::move(output), Tensor::kNoNode};
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
  return {*this, std::move(output), nodes_.size() - 1};
}

void Tape::backward(const Tensor& loss, const GradientReady& ready) {
  if (loss.size() != 1) {
    throw TrainerError("backward() starts from one number, not from a tensor of " +
                       text_of(loss.shape()) + ": take its sum or mean");
  }
  if (!loss.needs_gradient()) {
    throw TrainerError(
        "the loss depends on no parameter of this tape: use the parameters with Tape::use(), in a "
        "pass for training");
  }
  if (went_back_) {
    throw TrainerError(
        "backward() has gone over this pass: add the losses up and go back once, or begin() anew");
  }
  went_back_ = true;
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
  parameter.set_has_gradient();
  if (ready_) ready_(parameter);
}

std::vector<float> Tape::gradient(const Tensor& variable) {
  std::vector<float> result(variable.size(), 0.0F);
  if (!variable.needs_gradient()) return result;
  const Values& gradient = nodes_[variable.node()].gradient;
  if (!gradient.empty()) std::ranges::copy(plain(gradient).plain(), result.begin());
  return result;
}

Values Tape::plain(const Values& values) {
  return values.layout == nullptr ? values : kernels_->plain(values);
}

Values Tape::plain_of(const Tensor& tensor) {
  read_.push_back(plain(tensor.raw()));
  return read_.back();
}

// Here and not in tensor.cc, since only the tape can put numbers in order.
std::span<const float> Tensor::values() const { return tape().plain_of(*this).plain(); }

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
  if (tensor.needs_gradient()) return name_of_node(tensor.node());
  for (const auto& [parameter, node] : used_) {
    if (parameter->value_values().memory == tensor.raw().memory) return parameter->name();
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
