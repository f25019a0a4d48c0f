// SPDX-License-Identifier: Apache-2.0
// Runs the training core as a description says, for against_torch.py: which operations, on which
// numbers, in which order. Usage: core_runner CASES.json IN.safetensors OUT.safetensors
//
// CASES.json is an array of cases, and each tensor of a case is called "<id>/<name>". A case has
//   nodes      operations and layers in their order: {"op", "in", "out"} with what the operation
//   needs leaves     {"name", "as"}: a variable, a parameter, a constant, or memory that is
//   borrowed loss       {"op", "in"}, with "global_batch"
// and what comes back is each node's output and the gradient by each variable and parameter. A case
// with "steps" is trained: "layers" live over all steps, and each step names its micro-batches.
// What a case throws comes back as its "error" in the metadata of OUT.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/optim/schedule.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/normalization.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/python/core/tensor_files.h"

using namespace ronde::trainer;  // NOLINT(google-build-using-namespace): as a user would
using nlohmann::json;

namespace {

std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

using Inputs = std::vector<Tensor>;

Window window_of(const json& node) {
  const json& one = node.at("window");
  return {.side = one.at("side"), .stride = one.at("stride"), .padding = one.at("padding")};
}

using Operation = Tensor (*)(const json& node, const Inputs& in);
const std::map<std::string, Operation> kOperations{
    {"matmul", [](const json&, const Inputs& in) { return matmul(in[0], in[1]); }},
    {"linear", [](const json&, const Inputs& in) { return linear(in[0], in[1], in[2]); }},
    {"convolution",
     [](const json& node, const Inputs& in) {
       return convolution(in[0], in[1], in[2], window_of(node));
     }},
    {"max_pool",
     [](const json& node, const Inputs& in) { return max_pool(in[0], window_of(node)); }},
    {"average_pool",
     [](const json& node, const Inputs& in) { return average_pool(in[0], window_of(node)); }},
    {"relu", [](const json&, const Inputs& in) { return relu(in[0]); }},
    {"sigmoid", [](const json&, const Inputs& in) { return sigmoid(in[0]); }},
    {"add", [](const json&, const Inputs& in) { return in[0] + in[1]; }},
    {"subtract", [](const json&, const Inputs& in) { return in[0] - in[1]; }},
    {"multiply", [](const json&, const Inputs& in) { return in[0] * in[1]; }},
    {"scale", [](const json& node, const Inputs& in) { return in[0] * float{node.at("factor")}; }},
    {"dropout",
     [](const json& node, const Inputs& in) { return dropout(in[0], node.at("rate"), "drop"); }},
    {"reshape",
     [](const json& node, const Inputs& in) { return reshape(in[0], Shape(node.at("shape"))); }},
    {"flatten", [](const json&, const Inputs& in) { return flatten(in[0]); }},
    {"concat", [](const json& node, const Inputs& in) { return concat(in, node.at("axis")); }},
    {"sum", [](const json&, const Inputs& in) { return sum(in[0]); }},
    {"mean", [](const json&, const Inputs& in) { return mean(in[0]); }},
    {"sum_axis", [](const json& node, const Inputs& in) { return sum(in[0], node.at("axis")); }},
    {"mean_axis", [](const json& node, const Inputs& in) { return mean(in[0], node.at("axis")); }},
};

constexpr auto kFirst = Initialization::kHe;  // the case has other values
using Layers = std::map<std::string, std::unique_ptr<Layer>>;

std::unique_ptr<Layer> layer_of(const json& one) {
  const std::string kind = one.at("op");
  const std::string name = one.at("name");
  if (kind == "Linear") {
    return std::make_unique<Linear>(name, one.at("inputs"), one.at("outputs"), kFirst, 1);
  }
  if (kind == "Convolution") {
    return std::make_unique<Convolution>(name, one.at("inputs"), one.at("outputs"), window_of(one),
                                         kFirst, 1);
  }
  if (kind == "BatchNorm") {
    const SumOverRanks alone = [](std::span<double>) {};
    return std::make_unique<BatchNorm>(name, std::size_t{one.at("channels")},
                                       one.at("over_ranks") ? alone : SumOverRanks());
  }
  if (kind == "MaxPool") return std::make_unique<MaxPool>(window_of(one));
  if (kind == "AveragePool") return std::make_unique<AveragePool>(window_of(one));
  if (kind == "Relu") return std::make_unique<Applied>(relu);
  if (kind == "Sigmoid") return std::make_unique<Applied>(sigmoid);
  if (kind == "Flatten") return std::make_unique<Applied>(flatten);
  if (kind == "Dropout") return std::make_unique<Dropout>(name, double{one.at("rate")});
  throw std::runtime_error("there is no layer " + kind);
}

// The tensors of a pass by name. `prefix` is that of what comes back.
class PassOfCase {
 public:
  PassOfCase(Tape& tape, Files& files, std::string id, std::string prefix, Layers& layers)
      : tape_(tape),
        files_(files),
        id_(std::move(id)),
        prefix_(std::move(prefix)),
        layers_(layers) {}

  void put(const std::string& name, const Tensor& tensor) {
    tensors_.insert_or_assign(name, tensor);
  }

  void run(const json& nodes) {
    for (const json& node : nodes) {
      const std::string out = node.at("out");
      put(out, node.contains("layer") ? (*layers_.at(node.at("layer")))(inputs_of(node).at(0))
                                      : result_of(node));
      give(out, tensors_.at(out));
    }
  }

  Loss loss(const json& loss, const std::string& by) {
    const std::string kind = loss.at("op");
    const std::string targets = id_ + "/" + by;
    const Tensor& outputs = tensors_.at(loss.at("in"));
    const std::size_t batch = loss.at("global_batch");
    Loss result;
    if (kind == "softmax_cross_entropy") {
      result = softmax_cross_entropy(outputs, files_.labels(targets), batch);
    } else if (kind == "binary_cross_entropy") {
      result = binary_cross_entropy(outputs, files_.labels(targets), batch);
    } else if (kind == "mean_squared_error") {
      result = mean_squared_error(outputs, files_.values(targets), batch);
    } else {  // the gradient by the outputs is then what the file says
      const Tensor by_outputs = tape_.constant(outputs.shape(), files_.values(targets));
      result.value = sum(outputs * by_outputs);
    }
    give("loss", result.value);
    files_.say(prefix_ + "loss", digits(result.sum) + " " + std::to_string(result.correct) + " " +
                                     std::to_string(result.samples));
    return result;
  }

 private:
  Inputs inputs_of(const json& node) const {
    Inputs in;
    for (const std::string name : node.at("in")) in.push_back(tensors_.at(name));
    return in;
  }

  Tensor result_of(const json& node) {
    const std::string kind = node.at("op");
    const Inputs in = inputs_of(node);
    if (!kind.starts_with("batch_norm")) return kOperations.at(kind)(node, in);
    const float epsilon = node.at("epsilon");
    if (kind == "batch_norm_as_given") {
      const auto given = [&](const char* name) { return files_.values(id_ + "/" + name); };
      return batch_norm_as_given(in[0], in[1], in[2], epsilon, given("mean"), given("variance"));
    }
    BatchNormalized made =
        kind == "batch_norm"
            ? batch_norm(in[0], in[1], in[2], epsilon)
            : batch_norm_over_ranks(in[0], in[1], in[2], epsilon, [](std::span<double>) {});
    files_.give(prefix_ + "mean", made.mean.shape, made.mean.plain());
    files_.give(prefix_ + "variance", made.variance.shape, made.variance.plain());
    return made.output;
  }

  void give(const std::string& name, const Tensor& tensor) {
    files_.give(prefix_ + name, tensor.shape(), tensor.values());
  }

  Tape& tape_;
  Files& files_;
  std::string id_;
  std::string prefix_;
  Layers& layers_;
  std::map<std::string, Tensor> tensors_;
};

std::vector<std::uint32_t> numbers_of_samples(std::size_t samples) {
  std::vector<std::uint32_t> numbers(samples);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

void run_operation(const json& one, const std::string& id, Files& files, Tape& tape) {
  Layers none;
  std::map<std::string, std::unique_ptr<Parameter>> parameters;
  std::vector<std::pair<std::string, Tensor>> variables;
  const auto samples = numbers_of_samples(one.at("samples"));
  std::vector<std::vector<float>> borrowed;
  PassOfCase pass(tape, files, id, id + "/", none);
  tape.begin({.epoch = 0, .samples = samples});
  for (const json& leaf : one.at("leaves")) {
    const std::string name = leaf.at("name");
    const std::string as = leaf.at("as");
    const Shape& shape = files.shape(id + "/" + name);
    std::vector<float> values = files.values(id + "/" + name);
    if (as == "parameter") {
      auto& parameter = parameters[name] = std::make_unique<Parameter>(name, shape);
      std::ranges::copy(values, parameter->value().begin());
      pass.put(name, tape.use(*parameter));
    } else if (as == "variable") {
      variables.emplace_back(name, tape.variable(shape, values));
      pass.put(name, variables.back().second);
    } else {
      borrowed.push_back(std::move(values));
      pass.put(name, as == "borrowed" ? tape.borrow(shape, borrowed.back())
                                      : tape.constant(shape, borrowed.back()));
    }
  }
  pass.run(one.at("nodes"));
  tape.backward(pass.loss(one.at("loss"), "targets").value);
  for (const auto& [name, tensor] : variables) {
    files.give(id + "/by/" + name, tensor.shape(), tape.gradient(tensor));
  }
  for (const auto& [name, parameter] : parameters) {
    files.give(id + "/by/" + name, parameter->shape(), parameter->gradient());
  }
}

// Options that the description leaves out keep their defaults.
RuleOptions rule_of(const json& one) {
  static const std::map<std::string, RuleOptions::Kind> kKinds{
      {"Sgd", RuleOptions::Kind::kSgd},
      {"Adam", RuleOptions::Kind::kAdam},
      {"AdamW", RuleOptions::Kind::kAdamW}};
  RuleOptions rule{.kind = kKinds.at(one.at("kind"))};
  rule.momentum = one.value("momentum", rule.momentum);
  rule.nesterov = one.value("nesterov", rule.nesterov);
  rule.beta1 = one.value("beta1", rule.beta1);
  rule.beta2 = one.value("beta2", rule.beta2);
  rule.epsilon = one.value("epsilon", rule.epsilon);
  if (one.contains("weight_decay")) rule.weight_decay = one.at("weight_decay");
  return rule;
}

ScheduleOptions schedule_of(const json& one) {
  static const std::map<std::string, ScheduleOptions::Kind> kKinds{
      {"kConstant", ScheduleOptions::Kind::kConstant},
      {"kStep", ScheduleOptions::Kind::kStep},
      {"kCosine", ScheduleOptions::Kind::kCosine},
      {"kLinear", ScheduleOptions::Kind::kLinear}};
  return {.kind = kKinds.at(one.at("kind")),
          .learning_rate = one.at("learning_rate"),
          .warmup = one.at("warmup"),
          .every = one.at("every"),
          .factor = one.at("factor"),
          .total = one.at("total")};
}

void give_state(Files& files, const std::string& prefix, const std::vector<Parameter*>& parameters,
                const std::vector<StateTensor>& statistics, UpdateRule& rule) {
  for (const Parameter* const each : parameters) {
    files.give(prefix + "gradient/" + each->name(), each->shape(), each->gradient());
    files.give(prefix + "value/" + each->name(), each->shape(), each->value());
  }
  for (const StateTensor& each : statistics) {
    files.give(prefix + "statistic/" + each.name, each.shape, each.values);
  }
  for (const StateTensor& each : rule.state()) {
    files.give(prefix + "moment/" + each.name, each.shape, each.values);
  }
}

// What a case's layers list; its nodes say what is called.
struct Listed {
  Tensor operator()(const Tensor& input) const { return input; }
  [[nodiscard]] std::vector<Parameter*> parameters() const { return all; }
  [[nodiscard]] std::vector<StateTensor> statistics() const { return running; }
  std::vector<Parameter*> all;
  std::vector<StateTensor> running;
};

void run_training(const json& one, const std::string& id, Files& files, Tape& tape) {
  Layers layers;
  Listed listed;
  for (const json& description : one.at("layers")) {
    auto& layer = layers[description.at("name")] = layer_of(description);
    for (Parameter* const each : layer->parameters()) {
      std::ranges::copy(files.values(id + "/" + each->name()), each->value().begin());
      listed.all.push_back(each);
    }
    for (const StateTensor& each : layer->statistics()) listed.running.push_back(each);
  }
  const json& steps = one.at("steps");
  Model model(listed);
  Optimizer optimizer(model, {.rule = rule_of(one.at("optimizer")),
                              .schedule = schedule_of(one.at("schedule")),
                              .accumulate = steps.at(0).size(),
                              .clip_norm = one.at("clip_norm")});
  std::string rates;
  for (std::size_t step = 0; step <= steps.size(); ++step) {
    const bool training = step < steps.size();  // after the last one the model is evaluated
    const json& parts = steps.at(training ? step : 0);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string x = parts[i].at("x");
      const std::vector<float> values = files.values(id + "/" + x);
      const Shape& shape = files.shape(id + "/" + x);
      const auto samples = numbers_of_samples(shape[0]);
      const std::string prefix = id + "/" + std::to_string(step) + "/" + std::to_string(i) + "/";
      PassOfCase pass(tape, files, id, prefix, layers);
      tape.begin({.training = training, .epoch = step, .samples = samples});
      pass.put("x", tape.borrow(shape, values));
      pass.run(one.at("nodes"));
      if (training) optimizer.backward(tape, pass.loss(parts[i], parts[i].at("targets")));
    }
    if (!training) continue;
    const StepResult done = optimizer.step();
    rates += digits(done.learning_rate) + " " + digits(done.norm) + " ";
    give_state(files, id + "/" + std::to_string(step) + "/", listed.all, listed.running,
               optimizer.rule());
  }
  files.say(id + "/rates", rates);
}

void run_case(const json& one, Files& files, Tape& tape) {
  const std::string id = one.at("id");
  try {
    if (one.contains("steps")) {
      run_training(one, id, files, tape);
    } else {
      run_operation(one, id, files, tape);
    }
  } catch (const std::exception& error) {
    files.say(id + "/error", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("usage: core_runner CASES.json IN OUT");
  const json cases = json::parse(read_file(argv[1]));
  Files files(argv[2]);
  Tape tape;  // one for all of them: shapes change from pass to pass
  for (const json& one : cases) run_case(one, files, tape);
  files.write(argv[3]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "core_runner: %s\n", error.what());
  return 1;
}
