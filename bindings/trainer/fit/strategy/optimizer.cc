// SPDX-License-Identifier: Apache-2.0
// Steps of a model on each replica.
#include "bindings/trainer/fit/strategy/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/optim/clipping.h"
#include "bindings/trainer/optim/replicas.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

void require_local_steps(const OptimizerOptions& options, const Strategy& strategy) {
  std::string wrong;
  if (strategy.is_served() || strategy.shares_variables()) {
    wrong = "its replicas share them in " + strategy.name() + ": use another strategy";
  } else if (options.every == 0) {
    wrong = "it is to be every 0 steps: use at least 1";
  } else if (options.wire != Compression::kNone) {
    wrong = "they are sent as f32: leave OptimizerOptions::wire (--wire) at f32";
  }
  if (wrong.empty()) return;
  throw TrainerError("weights cannot be averaged (OptimizerOptions::average, --average): " + wrong,
                     kExitConfiguration);
}

OptimizerOptions checked(OptimizerOptions options, const Strategy& strategy) {
  // Who is sent its batches is sent their rates, and cannot know how many steps there are.
  if (!strategy.reads_data()) options.schedule = {};
  static_cast<void>(learning_rate(options.schedule, 0));  // throws for a schedule that is wrong
  if (options.average == Average::kWeights) require_local_steps(options, strategy);
  if (options.accumulate == 0) {
    throw TrainerError("a step accumulates 0 micro-batches: use at least 1");
  }
  if (!(options.clip_norm >= 0.0 && std::isfinite(options.clip_norm))) {
    throw TrainerError("gradients are clipped to a norm of " + number_text(options.clip_norm) +
                       ": use a number above 0, or 0 for no limit");
  }
  return options;
}

// How many steps lie between two comparisons of the ranks.
std::uint64_t check_interval() {
  constexpr std::uint64_t kUsual = 500;
  return variable("RONDE_CHECK") == "replicas" ? 1 : kUsual;
}

void broadcast(Engine& engine, const char* kind, std::span<const StateTensor> tensors, int root) {
  std::vector<Work> works;
  works.reserve(tensors.size());
  for (const StateTensor& tensor : tensors) {
    works.push_back(engine.broadcast(kind + ("/" + tensor.name), tensor.values, root));
  }
  for (Work& work : works) work.wait();
}

}  // namespace

// The gradients of parameters side by side on the board, for as long as it lives.
class Optimizer::Board {
 public:
  Board(const Engine& engine, std::span<Parameter* const> parameters)
      : parameters_(parameters.begin(), parameters.end()),
        memory_(floats_of(parameters), allocator<float>(engine)) {}
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() {
    for (Parameter* const parameter : parameters_) {
      const float* const gradient = parameter->gradient().data();
      // Another board may have it by now.
      if (gradient < memory_.data() || gradient >= memory_.data() + memory_.size()) continue;
      parameter->take_gradient_back();
    }
  }

  void place() {
    std::size_t first = 0;
    for (Parameter* const parameter : parameters_) {
      parameter->place_gradient(std::span(memory_).subspan(first, parameter->size()));
      first += rounded(parameter->size());
    }
  }

 private:
  // Each gradient begins on a cache line.
  static std::size_t rounded(std::size_t floats) { return (floats + 15) / 16 * 16; }
  static std::size_t floats_of(std::span<Parameter* const> parameters) {
    std::size_t floats = 0;
    for (const Parameter* const parameter : parameters) floats += rounded(parameter->size());
    return floats;
  }

  const std::vector<Parameter*> parameters_;
  std::vector<float, allocator<float>> memory_;
};

Optimizer::Optimizer(const Model& model, const Network& copy, Replica& here,
                     const OptimizerOptions& options)
    : model_(model),
      here_(here),
      parameters_(copy.parameters()),
      statistics_(copy.statistics()),
      sums_statistics_(std::ranges::any_of(statistics_, &StateTensor::of_all_ranks)),
      options_(checked(options, here.strategy())),
      rule_(options.rule, parameters_),
      used_(parameters_.size(), 0),
      in_pass_(parameters_.size(), 0),
      check_every_(check_interval()) {
  // Alone on its host a rank copies in either case.
  if (options_.gradients == Gradients::kBoard && options_.average == Average::kGradients &&
      here.engine().local_size() > 1) {
    board_ = std::make_unique<Board>(here.engine(), parameters_);
    board_->place();
  }
  for (const Parameter* const parameter : parameters_) {
    ids_.emplace(parameter, gradients_.size());
    gradients_.push_back(parameter->gradient().data());
  }
  path_ = options_.average == Average::kWeights
              ? local_path(here.engine(), parameters_, options_.every)
              : here.strategy().gradient_path(here, copy, rule_, options_);
  keep_statistics();
}

Optimizer::~Optimizer() { std::erase(here_.strategy().optimizers_, this); }

Optimizer& Optimizer::of(const Replica& here) {
  here_.strategy().require_own(here, "an optimiser");
  return &here == &here_ ? *this : *others_.at(here.local() - 1);
}

StepResult Optimizer::minimize(Replica& here, const Loss& loss) {
  Optimizer& mine = of(here);
  mine.backward(here.tape(), loss);
  return mine.passes_ < options_.accumulate ? StepResult() : mine.step();
}

bool Optimizer::trains(const Tape& tape) const {
  const auto own = [this](const Parameter* one) { return ids_.contains(one); };
  return std::ranges::any_of(tape.used_parameters(), own);
}

void Optimizer::broadcast_state(int root) {
  if (path_->is_served()) return take_served();
  std::vector<StateTensor> values;
  values.reserve(parameters_.size());
  for (const Parameter* parameter : parameters_) {
    values.push_back({parameter->name(), parameter->shape(), parameter->value()});
  }
  if (!here_.strategy().shares_variables()) {
    broadcast(here_.engine(), "parameter", values, root);
    broadcast(here_.engine(), "optimizer", rule_.state(), root);
  }
  for (Parameter* const parameter : parameters_) parameter->changed();
  std::array<std::uint64_t, 3> counters{global_step_, rule_.steps(), steps_here_};
  here_.engine().broadcast_blocking("optimizer", counters, root);
  global_step_ = counters[0];
  rule_.set_steps(counters[1]);
  finite_here_ = true;
  steps_here_ = counters[2];  // so that all compare their replicas at the same one
  broadcast_statistics(root);
}

void Optimizer::broadcast_statistics(int root) {
  if (path_->is_served()) return take_served();
  broadcast(here_.engine(), "statistic", statistics_, root);
  keep_statistics();
}

void Optimizer::keep_statistics() {
  kept_statistics_.clear();
  for (const StateTensor& one : statistics_) {
    kept_statistics_.insert(kept_statistics_.end(), one.values.begin(), one.values.end());
  }
}

void Optimizer::put_statistics_back() {
  auto from = kept_statistics_.cbegin();
  for (const StateTensor& one : statistics_) {
    std::copy_n(from, one.values.size(), one.values.begin());
    from += static_cast<std::ptrdiff_t>(one.values.size());
  }
}

void Optimizer::begin_pass() {
  if (passes_ == options_.accumulate) {
    throw TrainerError("backward() is called " + std::to_string(passes_ + 1) +
                       " times in a step that accumulates " + std::to_string(passes_) +
                       ": call step() before");
  }
  for (Id id = 0; id < parameters_.size(); ++id) {
    if (passes_ == 0) parameters_[id]->begin_step();
    // What is still being sent to servers stays where it is.
    if (path_->is_served() || parameters_[id]->gradient().data() == gradients_[id]) continue;
    throw TrainerError("the gradient of " + parameters_[id]->name() +
                       " lies elsewhere since this optimiser was made: another one has put it on a "
                       "board, or has taken it off: let go of that one before this one is made");
  }
  if (passes_++ == 0) {
    samples_ = global_batch_ = 0;
    finite_ = true;
    path_->begin_step(std::exchange(number_, std::nullopt), weight_);
  }
  std::ranges::fill(in_pass_, std::uint8_t{0});
}

void Optimizer::backward(Tape& tape, const Loss& loss) {
  begin_pass();
  if (!options_.part_of_model) require_listed(tape, parameters_, statistics_);
  const bool depends = loss.value.needs_gradient();
  require_every_pass(depends);
  samples_ += loss.samples;
  if (loss.global_batch != 0) global_batch_ = loss.global_batch;
  finite_ = finite_ && std::isfinite(loss.sum);
  if (depends || loss.samples > 0) {
    tape.backward(loss.value, [this](Parameter& parameter) {
      const auto found = ids_.find(&parameter);
      if (found == ids_.end()) return;  // this optimiser leaves it as it is
      in_pass_[found->second] = 1;
      used_[found->second] = 1;
      submit(found->second);
    });
  }
  end_pass();
}

void Optimizer::end_pass() {
  if (passes_ < options_.accumulate) return;
  for (Id id = 0; id < parameters_.size(); ++id) {
    if (in_pass_[id] != 0) continue;
    const Parameter& parameter = *parameters_[id];
    // No pass of this step has used it: what is there is of an earlier step.
    if (!parameter.has_gradient()) std::ranges::fill(parameter.gradient(), 0.0F);
    submit(id);
  }
}

void Optimizer::require_every_pass(bool taken) const {
  if (taken || !sums_statistics_) return;
  throw TrainerError(
      "a pass is left out, and the other ranks wait for it in a normalisation over all ranks: "
      "every "
      "rank runs the model and backward() as often as the others, also without samples");
}

void Optimizer::submit(Id id) {
  if (passes_ < options_.accumulate) return;
  // A pass that has failed may have no gradient at all: the sums over the ranks carry the word.
  if (!finite_) std::ranges::fill(parameters_[id]->gradient().first(1), std::nanf(""));
  path_->ready(id);
}

StepResult Optimizer::step() {
  require_every_pass(passes_ == options_.accumulate);
  while (passes_ < options_.accumulate) {
    begin_pass();
    end_pass();
  }
  passes_ = 0;
  if (path_->is_served()) return push_and_pull();
  path_->end_step();
  // Its losses were divided by the batch of all ranks.
  if (path_->is_local() && samples_ != 0 && global_batch_ > samples_) {
    scale_gradients(static_cast<float>(global_batch_) / static_cast<float>(samples_));
  }
  const double begin = steady_seconds();
  StepResult result;
  result.norm = finite_norm();
  if (options_.clip_norm > 0.0 && result.norm > options_.clip_norm) {
    scale_gradients(clipping_factor(options_.clip_norm, result.norm));
  }
  result.learning_rate = learning_rate_now();
  if (finite_here_) update(result.learning_rate);
  keep_statistics();
  ++global_step_;
  update_seconds_ += steady_seconds() - begin;
  if (path_->updated(samples_)) compare_ranks();
  return result;
}

void Optimizer::take_served() {
  path_->pull();
  is_served_ = true;
  global_step_ = path_->global_step();
  rule_.set_steps(global_step_);
  keep_statistics();
}

// A loop of the program's own has computed its first gradients from what it began with: they count
// where that is what the servers have.
StepResult Optimizer::push_and_pull() {
  GradientPath& servers = *path_;
  StepResult result;
  result.norm = finite_norm();
  double samples = static_cast<double>(samples_);
  if (!is_served_) {
    std::vector<std::uint64_t> before;
    before.reserve(parameters_.size());
    for (const Parameter* const one : parameters_) before.push_back(hash_of(one->value()));
    take_served();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (hash_of(parameters_[i]->value()) != before[i]) samples = 0.0;
    }
  }
  // Rounds are clipped by the servers, which alone know their average.
  if (!servers.in_rounds() && options_.clip_norm > 0.0 && result.norm > options_.clip_norm) {
    scale_gradients(clipping_factor(options_.clip_norm, result.norm));
  }
  result.learning_rate = learning_rate_now();
  servers.push(samples, result.learning_rate);
  take_served();
  return result;
}

// A step that fails has not happened, for the statistics either.
double Optimizer::finite_norm() {
  try {
    return norm_of_gradients();
  } catch (const NotFinite&) {
    put_statistics_back();
    if (!path_->is_local()) throw;
    // The others learn of it from the next average of the parameters.
    finite_here_ = false;
    std::ranges::fill(parameters_.front()->value().first(1), std::nanf(""));
    return 0.0;
  }
}

// All replicas are equal.
void Optimizer::compare_ranks() {
  if (path_->is_local()) {
    for (const Parameter* const parameter : parameters_) {
      if (std::isfinite(sum_of_squares(parameter->value()))) continue;
      finite_here_ = true;
      throw NotFinite("the average of the ranks' " + parameter->name() +
                          " is not finite after step " + std::to_string(global_step_) +
                          ": use a smaller learning rate, or average more often",
                      parameter->name());
    }
  }
  if (++steps_here_ == 1) require_samples_of_all_ranks();
  if (steps_here_ == 1 || steps_here_ % check_every_ == 0) require_same_replicas();
}

void Optimizer::end_epoch() {
  if (path_->end_epoch()) compare_ranks();
}

void Optimizer::update(double rate) {
  if (!here_.strategy().shares_variables()) return rule_.step(rate);
  here_.engine().barrier_blocking("optimizer/read");  // nobody goes back over the values any more
  rule_.step(rate);
  here_.engine().barrier_blocking("optimizer/updated");
}

double Optimizer::norm_of_gradients() const {
  double total = 0.0;
  for (const Parameter* const parameter : parameters_) {
    const double squares = sum_of_squares(parameter->gradient());
    if (!std::isfinite(squares)) {
      const char* const advice =
          options_.wire == Compression::kF16
              ? ": f16 on the wire ends at 65504, so use bf16, or a smaller learning rate"
              : ": use a smaller learning rate";
      throw NotFinite("the gradient of " + parameter->name() +
                          ", summed over the ranks, is not finite in step " +
                          std::to_string(global_step_) + advice,
                      parameter->name());
    }
    total += squares;
  }
  return std::sqrt(total);
}

void Optimizer::scale_gradients(float factor) {
  for (const Parameter* const parameter : parameters_) {
    for (float& value : parameter->gradient()) value *= factor;
  }
}

std::string Optimizer::settings() const {
  std::string text = text_of(options_.schedule);
  if (options_.clip_norm != 0.0) text += "; clipped to " + number_text(options_.clip_norm);
  if (options_.wire == Compression::kF16) text += "; sent as f16";
  if (options_.average == Average::kWeights) {
    text += "; weights averaged every " + std::to_string(options_.every) + " steps";
  }
  if (options_.wire == Compression::kBf16) text += "; sent as bf16";
  return text;
}

}  // namespace ronde::trainer
