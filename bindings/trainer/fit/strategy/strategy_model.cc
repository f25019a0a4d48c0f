// SPDX-License-Identifier: Apache-2.0
// The copies of a model and of its optimiser.
#include "bindings/trainer/fit/strategy/strategy_model.h"

#include <algorithm>

#include "bindings/trainer/optim/replicas.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr const char* kOneScope =
    ": make both while the Scope of the strategy that trains them lives";

std::string list_of(const std::vector<Parameter*>& parameters) {
  std::string text;
  for (const Parameter* const one : parameters) {
    text += (text.empty() ? "" : ", ") + one->name() + ' ' + text_of(one->shape());
  }
  return text;
}

// Without the side of the samples.
Shape shape_of_one(const Array& inputs) {
  if (!inputs.shape.empty()) return {inputs.shape.begin() + 1, inputs.shape.end()};
  throw TrainerError("an array of inputs has no side of samples: give it the shape {samples, ...}",
                     kExitConfiguration);
}

}  // namespace

struct StrategyOptimizer::Copy {
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<ServedPath> served;
  std::unique_ptr<DistributedOptimizer> distributed;
};

StrategyOptimizer::StrategyOptimizer(StrategyModel& model, const OptimizerOptions& how,
                                     const DistributedOptions& options)
    : model_(model) {
  Strategy& strategy = model.strategy();
  if (&strategy != &current_strategy()) {
    throw TrainerError("the optimiser is made under " + current_strategy().name() +
                           ", and its model was under " + strategy.name() + kOneScope,
                       kExitConfiguration);
  }
  strategy.require_usable("StrategyOptimizer");
  for (std::size_t i = 0; i < strategy.local_replicas(); ++i) {
    const Model& copy = model.copy(i);
    auto optimizer = make_optimizer(how, copy.parameters());
    if (strategy.shares_variables() && i != 0) optimizer->read_state_of(*copies_[0]->optimizer);
    DistributedOptions complete = strategy.completed(options, i);
    // Who is sent its batches is sent their rates, and cannot know how many steps there are.
    if (!strategy.reads_data()) complete.schedule = {};
    auto served = strategy.served_path(copy, how, *optimizer, complete);
    complete.served = served.get();
    auto distributed = std::make_unique<DistributedOptimizer>(
        strategy.replica(i).engine(), copy.parameters(), copy.statistics(), *optimizer, complete);
    copies_.push_back(std::make_unique<Copy>(
        Copy{std::move(optimizer), std::move(served), std::move(distributed)}));
  }
  if (strategy.is_served()) return;  // the chief's own count, once it knows what it goes on from
  strategy.run([this](Replica& here) { of(here).broadcast_state(); });
}

StrategyOptimizer::~StrategyOptimizer() = default;

DistributedOptimizer& StrategyOptimizer::of(const Replica& here) const {
  if (&here.strategy() == &model_.strategy()) return *copies_[here.local()]->distributed;
  throw TrainerError("an optimiser of " + model_.strategy().name() + " is used in a step of " +
                         here.strategy().name() + kOneScope,
                     kExitConfiguration);
}

StepResult StrategyOptimizer::minimize(Replica& here, const Loss& loss) {
  DistributedOptimizer& mine = of(here);
  mine.backward(here.tape(), loss);
  return mine.step();
}

StrategyModel::StrategyModel(Strategy& strategy) : strategy_(strategy) {
  strategy_.require_usable("StrategyModel");
}

StrategyModel::~StrategyModel() = default;

void StrategyModel::begin() {
  const std::vector<Parameter*>& first = copies_.front().model.parameters();
  for (std::size_t i = 1; i < copies_.size(); ++i) {
    const std::vector<Parameter*>& mine = copies_[i].model.parameters();
    if (list_of(mine) != list_of(first)) {
      throw TrainerError("the maker of the model has made " + list_of(first) + ", and then " +
                             list_of(mine) + ": make the same model each time",
                         kExitConfiguration);
    }
    if (!strategy_.shares_variables()) continue;
    for (std::size_t j = 0; j < mine.size(); ++j) mine[j]->share_value_of(*first[j]);
  }
}

const StrategyModel::Copy& StrategyModel::copy_here() const {
  if (!in_step()) return copies_.front();
  const Replica& here = current_replica();
  if (&here.strategy() == &strategy_) return copies_[here.local()];
  throw TrainerError("a model of " + strategy_.name() + " is used in a step of " +
                         here.strategy().name() + kOneScope,
                     kExitConfiguration);
}

void StrategyModel::compile(StrategyOptimizer& optimizer, const LossFunction& loss,
                            const std::vector<Metric>& metrics, std::uint64_t seed) {
  strategy_.require_usable("compile()");
  if (const Strategy* const chosen = Scope::innermost();
      chosen != nullptr && chosen != &strategy_) {
    throw TrainerError("compile() is called under " + chosen->name() + ", and the model is of " +
                           strategy_.name() + kOneScope,
                       kExitConfiguration);
  }
  if (&optimizer.model() != this) {
    throw TrainerError("compile() is given the optimiser of another model: give it one of this",
                       kExitConfiguration);
  }
  const LossFunction watched = watching(loss, metrics);
  optimizer_ = &optimizer;
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    copies_[i].learner =
        std::make_unique<HostLearner>(copies_[i].model, watched, optimizer.of(strategy_.replica(i)),
                                      seed, strategy_.threads_per_replica());
  }
}

Learner& StrategyModel::learner() const {
  if (optimizer_ != nullptr) return *copy_here().learner;
  throw TrainerError("the model has neither loss nor optimiser yet: call compile() before",
                     kExitConfiguration);
}

Dataset StrategyModel::shard(const Dataset& data) const {
  return current_replica().shard(data, optimizer_->of(current_replica()).options().accumulate);
}

FitResult StrategyModel::fit(const Dataset& data, const FitOptions& options,
                             const CallbackMaker& callbacks, const Dataset* validation) {
  FitOptions counted = options;
  if (options.first_epoch == 0 && options.first_step == 0) {
    counted.first_epoch += epochs_;
    counted.epochs += epochs_;
  }
  epochs_ = counted.epochs;
  return strategy_
      .run([&](Replica& here) {
        Learner& mine = learner();
        const auto owned = callbacks ? callbacks(here) : decltype(callbacks(here))();
        std::vector<Callback*> called;
        called.reserve(owned.size());
        for (const auto& callback : owned) called.push_back(callback.get());
        std::optional<Dataset> validated;
        if (validation != nullptr) validated = here.shard_to_score(*validation);
        return trainer::fit(here, mine, shard(data), counted, called,
                            validated ? &*validated : nullptr);
      })
      .values()
      .front();
}

Metrics StrategyModel::evaluate(const Dataset& data) {
  return strategy_
      .run([&](Replica& here) {
        return trainer::evaluate(here, learner(), here.shard_to_score(data));
      })
      .values()
      .front();
}

Predictions StrategyModel::predict(const Dataset& data) {
  const auto parts = strategy_.run(
      [&](Replica& here) { return trainer::predict(here, learner(), here.shard_to_score(data)); });
  Predictions mine;
  for (const Predictions& part : parts.values()) {
    mine.samples.insert(mine.samples.end(), part.samples.begin(), part.samples.end());
    mine.outputs.insert(mine.outputs.end(), part.outputs.begin(), part.outputs.end());
  }
  const auto samples = strategy_.over_processes("predict/samples", std::move(mine.samples));
  const auto outputs = strategy_.over_processes("predict/outputs", std::move(mine.outputs));
  return in_order(samples, outputs);
}

Predictions StrategyModel::predict(const Array& inputs, std::size_t batch) {
  const std::size_t samples = inputs.shape.empty() ? 0 : inputs.shape.front();
  return predict(batches_of(inputs, std::vector<float>(samples), batch));
}

// Processes with other arrays would each learn a part of their own ones.
void StrategyModel::require_same(const Array& inputs, const std::vector<float>& answers) {
  if (optimizer_ != nullptr && strategy_.is_served()) {
    ServedPath* const served = optimizer_->of(strategy_.replica(0)).options().served;
    served->alike("arrays", std::to_string(hash_of(inputs.values) ^ hash_of(answers)));
  }
  if (strategy_.processes() == 1) return;
  const std::vector<std::uint64_t> mine{hash_of(inputs.values), hash_of(answers)};
  const auto all = strategy_.over_processes("arrays", mine);
  for (std::size_t i = 2; i < all.size(); ++i) {
    if (all[i] == all[i % 2]) continue;
    throw AgreedError(std::string("the ") + (i % 2 == 0 ? "inputs" : "answers") + " of process " +
                          std::to_string(i / 2) + " are others than those of process 0: give " +
                          "each process the whole, or its own part by distribute_from()",
                      0, kExitConfiguration);
  }
}

Dataset StrategyModel::batches_of(const Array& inputs, const std::vector<std::int64_t>& labels,
                                  std::size_t batch) {
  require_same(inputs, {labels.begin(), labels.end()});
  const std::int64_t most =
      labels.empty() ? 0 : std::max<std::int64_t>(0, std::ranges::max(labels));
  return Dataset::from_arrays(shape_of_one(inputs), inputs.values, labels,
                              static_cast<std::size_t>(most) + 1)
      .batch(batch);
}

Dataset StrategyModel::batches_of(const Array& inputs, const std::vector<float>& targets,
                                  std::size_t batch) {
  require_same(inputs, targets);
  const Shape one = shape_of_one(inputs);
  const std::size_t samples = std::max<std::size_t>(1, inputs.shape.front());
  if (targets.size() % samples != 0) {
    throw TrainerError("there are " + std::to_string(targets.size()) + " numbers to predict for " +
                           std::to_string(samples) + " samples: give as many for each",
                       kExitConfiguration);
  }
  return Dataset::from_arrays(one, inputs.values, targets, targets.size() / samples).batch(batch);
}

}  // namespace ronde::trainer
