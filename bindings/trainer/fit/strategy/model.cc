// SPDX-License-Identifier: Apache-2.0
// The copies of a model, and a step over the tape.
#include "bindings/trainer/fit/strategy/model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "bindings/trainer/fit/learner.h"
#include "bindings/trainer/optim/replicas.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Puts the running statistics back: a trial must leave no trace.
class KeepStatistics {
 public:
  explicit KeepStatistics(const std::vector<StateTensor>& statistics) : statistics_(statistics) {
    for (const StateTensor& one : statistics_) {
      kept_.emplace_back(one.values.begin(), one.values.end());
    }
  }
  KeepStatistics(const KeepStatistics&) = delete;
  KeepStatistics& operator=(const KeepStatistics&) = delete;
  ~KeepStatistics() {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      std::ranges::copy(kept_[i], statistics_[i].values.begin());
    }
  }

 private:
  const std::vector<StateTensor>& statistics_;
  std::vector<std::vector<float>> kept_;
};

std::string list_of(const std::vector<Parameter*>& parameters) {
  std::string text;
  for (const Parameter* const one : parameters) {
    text += (text.empty() ? "" : ", ") + one->name() + ' ' + text_of(one->shape());
  }
  return text;
}

Replica& first_replica_of(Model& model) {
  Strategy& strategy = model.strategy();
  if (&strategy != &current_strategy()) {
    refuse_mixed("the optimiser is made under " + current_strategy().name() +
                 ", and its model was under " + strategy.name());
  }
  strategy.require_usable("Optimizer");
  return strategy.replica(0);
}

}  // namespace

// That of one replica, and what takes its steps.
class Model::Copy final : public Learner {
 public:
  Copy(Replica& here, std::shared_ptr<void> owner, Network network)
      : here_(here), owner_(std::move(owner)), network_(std::move(network)) {}
  void compile(Optimizer& optimizer, const LossFunction& loss, std::uint64_t seed) {
    optimizer_ = &optimizer;
    loss_ = loss;
    seed_ = seed;
    metrics_ = last_step_ = {};
    bad_.clear();
  }
  [[nodiscard]] const Network& network() const noexcept { return network_; }
  void broadcast_state(int root) override { optimizer_->broadcast_state(root); }
  void broadcast_statistics(int root) override { optimizer_->broadcast_statistics(root); }
  void try_shapes(const Batch& batch) override;
  void step(const StepBatch& batch, std::uint64_t epoch) override;
  [[nodiscard]] Metrics take_metrics() override;
  [[nodiscard]] Metrics metrics() const override { return metrics_; }
  [[nodiscard]] Metrics last_step() const override { return last_step_; }
  [[nodiscard]] Metrics evaluate(const Batch& batch) override;
  [[nodiscard]] std::vector<float> predict(const Batch& batch) override;
  [[nodiscard]] std::string parameter_hash() override { return network_.parameter_hash(); }
  [[nodiscard]] std::vector<std::string> unused() const override;
  [[nodiscard]] LearnerTimes times() const override;
  [[nodiscard]] GradientPath& path() noexcept override { return optimizer_->path(); }
  void end_epoch() override;

 private:
  void take_step(const StepBatch& batch, std::uint64_t epoch);
  [[noreturn]] void refuse(const NotFinite& error);
  Tensor outputs(const Batch& batch, bool training, std::uint64_t epoch,
                 std::size_t global_batch = 0);

  Replica& here_;
  std::shared_ptr<void> owner_;
  Network network_;
  Optimizer* optimizer_ = nullptr;  // this and what follows once compiled
  LossFunction loss_;
  std::uint64_t seed_ = 0;
  Metrics metrics_;
  Metrics last_step_;
  std::string bad_;  // why this rank's numbers are not finite
  int bad_code_ = kExitConfiguration;
};

Tensor Model::Copy::outputs(const Batch& batch, bool training, std::uint64_t epoch,
                            std::size_t global_batch) {
  here_.tape().begin({training, seed_, epoch, batch.samples, batch.repetitions, global_batch});
  return network_(here_.tape().borrow(batch.shape, batch.inputs));
}

void Model::Copy::try_shapes(const Batch& batch) {
  const KeepStatistics keep(network_.statistics());
  // As in training, since only then the tape knows what each layer is called.
  const Loss loss = loss_(outputs(batch, true, 0), batch);
  (void)loss;
  require_listed(here_.tape(), network_.parameters(), network_.statistics());
  here_.tape().begin();
}

void Model::Copy::step(const StepBatch& batch, std::uint64_t epoch) {
  last_step_ = {};
  if (path().sends_data()) {
    optimizer_->set_global_step(path().global_step());
    const auto [loss, correct, samples] =
        path().send_batch(batch, epoch, optimizer_->learning_rate_now());
    last_step_ = {loss, correct, samples};
    return metrics_.add(last_step_);
  }
  if (path().reads_data()) return take_step(batch, epoch);
  StepBatch sent;
  if (!path().await_batch(sent, epoch)) return;
  take_step(sent, epoch);
  path().answer({last_step_.loss_sum, last_step_.correct, last_step_.samples});
}

void Model::Copy::take_step(const StepBatch& batch, std::uint64_t epoch) {
  // Its place in the data, which a rank that has left out a batch knows too; readable in errors,
  // and above any number of steps in an epoch.
  constexpr std::uint64_t kEpoch = 1'000'000'000;
  std::size_t samples = batch.failure.empty() ? 0 : 1;
  for (const Batch& part : batch.parts) samples += part.size();
  optimizer_->begin_step(epoch * kEpoch + batch.step, static_cast<double>(samples));
  std::string bad = batch.failure;
  int exit_code = bad.empty() ? kExitConfiguration : kExitFailure;
  for (const Batch& part : batch.parts) {
    Loss loss;
    try {
      loss = loss_(outputs(part, true, epoch, batch.global_size), part);
    } catch (const Error&) {
      throw;  // the job's, not this rank's
    } catch (const std::exception& error) {
      // The others wait for gradients: they learn of it as of a loss that is no number. Where they
      // wait in the forward pass, too, only the end of this rank can tell them.
      if (optimizer_->sums_statistics()) throw;
      if (bad.empty()) {
        bad = error.what();
        exit_code = exit_code_of(error);
      }
    }
    if (bad.empty() && !std::isfinite(loss.sum)) {
      bad = "the loss is not a finite number, first after " + here_.tape().first_not_finite() +
            ": use a smaller learning rate";
    }
    if (!bad.empty()) loss.sum = std::numeric_limits<double>::quiet_NaN();
    const Metrics one = metrics_of(loss);
    metrics_.add(one);
    last_step_.add(one);
    optimizer_->backward(here_.tape(), loss);
  }
  if (bad_.empty()) {
    bad_code_ = exit_code;
    bad_ = std::move(bad);
  }
  try {
    optimizer_->step();
  } catch (const NotFinite& error) {
    refuse(error);
  }
}

// What was bad here may be of an earlier step, where weights are averaged each so many.
void Model::Copy::refuse(const NotFinite& error) {
  const std::string here = bad_.empty() ? "" : "; on this rank: " + bad_;
  throw NotFiniteStep(error.what() + here, std::exchange(bad_, {}), bad_code_);
}

void Model::Copy::end_epoch() {
  try {
    optimizer_->end_epoch();
  } catch (const NotFinite& error) {
    refuse(error);
  }
}

Metrics Model::Copy::take_metrics() {
  const auto [loss, correct, samples] = path().finish_sent();
  metrics_.add(Metrics{loss, correct, samples});
  return std::exchange(metrics_, {});
}

Metrics Model::Copy::evaluate(const Batch& batch) {
  return metrics_of(loss_(outputs(batch, false, 0), batch));
}

std::vector<float> Model::Copy::predict(const Batch& batch) {
  const Tensor result = outputs(batch, false, 0);
  const std::span<const float> values = result.values();
  return {values.begin(), values.end()};
}

std::vector<std::string> Model::Copy::unused() const {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < optimizer_->used().size(); ++i) {
    if (optimizer_->used()[i] == 0) unused.push_back(optimizer_->parameters()[i]->name());
  }
  return unused;
}

LearnerTimes Model::Copy::times() const {
  const AveragerStatistics averaging = optimizer_->averaging();
  return {optimizer_->waited_seconds(), averaging.share_before_wait(),
          averaging.seconds_before_wait, optimizer_->update_seconds()};
}

Model::Model(Strategy& strategy) : strategy_(strategy) { strategy_.require_usable("Model"); }

Model::~Model() = default;

void Model::require_one_replica() const {
  if (strategy_.local_replicas() == 1) return;
  throw TrainerError(strategy_.name() + " has " + std::to_string(strategy_.local_replicas()) +
                         " replicas in this process, and one model is given: give a function that "
                         "makes one for each",
                     kExitConfiguration);
}

void Model::add(std::shared_ptr<void> owner, Network network) {
  const std::size_t local = copies_.size();
  const std::vector<Parameter*>& mine = network.parameters();
  if (local != 0) {
    const std::vector<Parameter*>& first = copy(0).parameters();
    if (list_of(mine) != list_of(first)) {
      throw TrainerError("the maker of the model has made " + list_of(first) + ", and then " +
                             list_of(mine) + ": make the same model each time",
                         kExitConfiguration);
    }
    for (std::size_t i = 0; strategy_.shares_variables() && i < mine.size(); ++i) {
      mine[i]->share_value_of(*first[i]);
    }
  }
  copies_.push_back(
      std::make_unique<Copy>(strategy_.replica(local), std::move(owner), std::move(network)));
}

Model::Model(std::vector<LayerMaker> layers, std::uint64_t seed) : Model(current_strategy()) {
  layers_ = std::move(layers);
  layers_seed_ = seed;
  if (const Shape sample = input_of(layers_); !sample.empty()) build(sample);
}

void Model::build(const Shape& sample) {
  if (!copies_.empty()) return;
  for (std::size_t i = 0; i < strategy_.local_replicas(); ++i) {
    add(std::shared_ptr(make_layers(layers_, sample, layers_seed_)));
  }
  if (compiled_) start();
}

Model::Copy& Model::copy_here() const {
  if (copies_.empty()) {
    throw TrainerError(
        "the sizes of the layers are not known yet: begin with input(...), or call build() or "
        "fit() before",
        kExitConfiguration);
  }
  if (in_step()) {
    strategy_.require_own(current_replica(), "a model");
    return *copies_.at(current_replica().local());
  }
  return *copies_.front();
}

const Network& Model::network() const { return copy_here().network(); }

const Network& Model::copy(std::size_t local) const { return copies_.at(local)->network(); }

Optimizer& Model::optimizer() const {
  if (optimizer_) return *optimizer_;
  throw TrainerError("the model has neither loss nor optimiser yet: call compile() before",
                     kExitConfiguration);
}

Learner& Model::learner() const {
  Copy& mine = copy_here();
  (void)optimizer();
  return mine;
}

Dataset Model::shard(const Dataset& data) const {
  return current_replica().shard(data, optimizer().options().accumulate);
}

void Model::compile(const OptimizerOptions& optimizer, const LossFunction& loss,
                    const std::vector<Metric>& metrics, std::uint64_t seed) {
  strategy_.require_usable("compile()");
  if (const Strategy* const chosen = Scope::innermost();
      chosen != nullptr && chosen != &strategy_) {
    refuse_mixed("compile() is called under " + chosen->name() + ", and the model is of " +
                 strategy_.name());
  }
  compiled_ = {optimizer, watching(loss, metrics), seed};
  if (!copies_.empty()) start();
}

void Model::start() {
  const Scope scope(strategy_);
  optimizer_.reset();
  optimizer_ = std::make_unique<Optimizer>(*this, compiled_->options);
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    copies_[i]->compile(optimizer_->of(strategy_.replica(i)), compiled_->loss, compiled_->seed);
  }
}

Optimizer::Optimizer(Model& model, const OptimizerOptions& options)
    : Optimizer(model, model.copy(0), first_replica_of(model), options) {
  model.strategy().optimizers_.push_back(this);
  Strategy& strategy = model.strategy();
  for (std::size_t i = 1; i < strategy.local_replicas(); ++i) {
    others_.emplace_back(new Optimizer(model, model.copy(i), strategy.replica(i), options));
    if (strategy.shares_variables()) others_.back()->rule_.read_state_of(rule_);
  }
  if (path_->is_served()) return;  // the chief's own count, once it knows what it goes on from
  strategy.run([this](Replica& here) { of(here).broadcast_state(); });
}

Metrics Replica::minimize(const Loss& loss) {
  std::vector<Optimizer*> found;
  for (Optimizer* const one : strategy_.optimizers_) {
    if (one->of(*this).trains(tape_)) found.push_back(one);
  }
  if (found.size() != 1) {
    throw TrainerError(std::to_string(found.size()) +
                           " optimisers have parameters that this pass has used: make one, or say "
                           "which: optimizer.minimize(here, loss)",
                       kExitConfiguration);
  }
  found.front()->minimize(*this, loss);
  return metrics_of(loss);
}

FitResult Model::fit(const Dataset& data, const FitOptions& options, const CallbackMaker& callbacks,
                     const Dataset* validation) {
  build(data.format().shape);
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

Metrics Model::evaluate(const Dataset& data) {
  build(data.format().shape);
  return strategy_
      .run([&](Replica& here) {
        return trainer::evaluate(here, learner(), here.shard_to_score(data));
      })
      .values()
      .front();
}

Predictions Model::predict(const Dataset& data) {
  build(data.format().shape);
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

}  // namespace ronde::trainer
