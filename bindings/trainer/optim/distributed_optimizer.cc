// SPDX-License-Identifier: Apache-2.0
// The optimiser of a job.
#include "bindings/trainer/optim/distributed_optimizer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "bindings/trainer/optim/clipping.h"
#include "bindings/trainer/optim/replicas.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

DistributedOptions checked(DistributedOptions options) {
  static_cast<void>(learning_rate(options.schedule, 0));  // throws for a schedule that is wrong
  if (options.accumulate == 0) {
    throw TrainerError("a step accumulates 0 micro-batches: use at least 1");
  }
  if (!(options.clip_norm >= 0.0 && std::isfinite(options.clip_norm))) {
    throw TrainerError("gradients are clipped to a norm of " + number_text(options.clip_norm) +
                       ": use a number above 0, or 0 for no limit");
  }
  return options;
}

AveragerOptions averager_options(const DistributedOptions& options) {
  // A bucket that is never full leaves in wait().
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  return {.bucket_bytes = options.overlap ? options.bucket_bytes : kNever};
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

// The gradients of parameters in one Buffer, for as long as it lives.
class DistributedOptimizer::Board {
 public:
  Board(const Engine& engine, std::span<Parameter* const> parameters)
      : parameters_(parameters.begin(), parameters.end()), buffer_(engine, floats_of(parameters)) {}
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() {
    const std::span<const float> memory = buffer_.span();
    for (Parameter* const parameter : parameters_) {
      const float* const gradient = parameter->gradient().data();
      // Another board may have it by now.
      if (gradient < memory.data() || gradient >= memory.data() + memory.size()) continue;
      parameter->take_gradient_back();
    }
  }

  void place() {
    std::size_t first = 0;
    for (Parameter* const parameter : parameters_) {
      parameter->place_gradient(buffer_.span().subspan(first, parameter->size()));
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
  Buffer<float> buffer_;
};

DistributedOptimizer::DistributedOptimizer(Engine& engine, std::vector<Parameter*> parameters,
                                           std::vector<StateTensor> statistics,
                                           Optimizer& optimizer, const DistributedOptions& options)
    : engine_(engine),
      parameters_(std::move(parameters)),
      statistics_(std::move(statistics)),
      sums_statistics_(std::ranges::any_of(statistics_, &StateTensor::of_all_ranks)),
      optimizer_(optimizer),
      options_(checked(options)),
      used_(parameters_.size(), 0),
      in_pass_(parameters_.size(), 0),
      check_every_(check_interval()),
      averager_(engine, ronde::sum, AllreduceOptions{.compression = options.wire},
                averager_options(options)) {
  if (options_.gradients == Gradients::kBoard) {
    board_ = std::make_unique<Board>(engine_, parameters_);
    board_->place();
  }
  for (const Parameter* parameter : parameters_) {
    ids_.emplace(parameter, averager_.add("gradient/" + parameter->name(), parameter->gradient()));
    gradients_.push_back(parameter->gradient().data());
  }
  for (const Parameter* parameter : optimizer_.parameters()) {
    if (ids_.contains(parameter)) continue;
    throw TrainerError("the optimiser updates " + parameter->name() +
                       ", whose gradient is not summed over the ranks: give it here too");
  }
  keep_statistics();
}

DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::broadcast_state(int root) {
  if (options_.served != nullptr) return take_served();
  std::vector<StateTensor> values;
  values.reserve(parameters_.size());
  for (const Parameter* parameter : parameters_) {
    values.push_back({parameter->name(), parameter->shape(), parameter->value()});
  }
  if (!options_.shared_values) {
    broadcast(engine_, "parameter", values, root);
    broadcast(engine_, "optimizer", optimizer_.state(), root);
  }
  for (Parameter* const parameter : parameters_) parameter->changed();
  std::array<std::uint64_t, 2> counters{global_step_, optimizer_.steps()};
  engine_.broadcast_blocking("optimizer", counters, root);
  global_step_ = counters[0];
  optimizer_.set_steps(counters[1]);
  broadcast_statistics(root);
}

void DistributedOptimizer::broadcast_statistics(int root) {
  if (options_.served != nullptr) return take_served();
  broadcast(engine_, "statistic", statistics_, root);
  keep_statistics();
}

void DistributedOptimizer::keep_statistics() {
  kept_statistics_.clear();
  for (const StateTensor& one : statistics_) {
    kept_statistics_.insert(kept_statistics_.end(), one.values.begin(), one.values.end());
  }
}

void DistributedOptimizer::put_statistics_back() {
  auto from = kept_statistics_.cbegin();
  for (const StateTensor& one : statistics_) {
    std::copy_n(from, one.values.size(), one.values.begin());
    from += static_cast<std::ptrdiff_t>(one.values.size());
  }
}

void DistributedOptimizer::begin_pass() {
  if (passes_ == options_.accumulate) {
    throw TrainerError("backward() is called " + std::to_string(passes_ + 1) +
                       " times in a step that accumulates " + std::to_string(passes_) +
                       ": call step() before");
  }
  for (Id id = 0; id < parameters_.size(); ++id) {
    if (passes_ == 0) parameters_[id]->begin_step();
    const bool moves = options_.served != nullptr;  // what is still being sent stays where it is
    if (moves || parameters_[id]->gradient().data() == gradients_[id]) continue;
    throw TrainerError("the gradient of " + parameters_[id]->name() +
                       " lies elsewhere since this optimiser was made: another one has put it on a "
                       "board, or has taken it off: let go of that one before this one is made");
  }
  if (passes_++ == 0) {
    samples_ = global_batch_ = 0;
    finite_ = true;
    const auto number = std::exchange(number_, std::nullopt);
    if (number && !options_.sum_gradients && options_.served == nullptr)
      averager_.begin_step(*number);
  }
  std::ranges::fill(in_pass_, std::uint8_t{0});
}

void DistributedOptimizer::backward(Tape& tape, const Loss& loss) {
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

void DistributedOptimizer::end_pass() {
  if (passes_ < options_.accumulate) return;
  for (Id id = 0; id < parameters_.size(); ++id) {
    if (in_pass_[id] != 0) continue;
    const Parameter& parameter = *parameters_[id];
    // No pass of this step has used it: what is there is of an earlier step.
    if (!parameter.has_gradient()) std::ranges::fill(parameter.gradient(), 0.0F);
    submit(id);
  }
}

void DistributedOptimizer::require_every_pass(bool taken) const {
  if (taken || !sums_statistics_) return;
  throw TrainerError(
      "a pass is left out, and the other ranks wait for it in a normalisation over all ranks: "
      "every "
      "rank runs the model and backward() as often as the others, also without samples");
}

void DistributedOptimizer::submit(Id id) {
  if (passes_ < options_.accumulate) return;
  // A pass that has failed may have no gradient at all: the sums over the ranks carry the word.
  if (!finite_) std::ranges::fill(parameters_[id]->gradient().first(1), std::nanf(""));
  if (options_.sum_gradients || options_.served != nullptr) return;
  if (options_.shuffle_seed == 0) {
    averager_.ready(id);
  } else {
    held_back_.push_back(id);
  }
}

void DistributedOptimizer::submit_held_back() {
  const auto rank = static_cast<std::uint64_t>(engine_.rank());
  Generator generator(options_.shuffle_seed + rank, global_step_);
  for (std::size_t left = held_back_.size(); left > 1; --left) {
    std::swap(held_back_[left - 1], held_back_[generator.below(left)]);
  }
  for (const Id id : held_back_) averager_.ready(id);
  held_back_.clear();
}

StepResult DistributedOptimizer::step() {
  require_every_pass(passes_ == options_.accumulate);
  while (passes_ < options_.accumulate) {
    begin_pass();
    end_pass();
  }
  passes_ = 0;
  if (options_.served != nullptr) return push_and_pull();
  submit_held_back();
  options_.sum_gradients ? options_.sum_gradients(parameters_) : averager_.wait();
  const auto begin = std::chrono::steady_clock::now();
  StepResult result;
  result.norm = finite_norm();
  if (options_.clip_norm > 0.0 && result.norm > options_.clip_norm) {
    scale_gradients(clipping_factor(options_.clip_norm, result.norm));
  }
  result.learning_rate = learning_rate_now();
  update(result.learning_rate);
  keep_statistics();
  ++global_step_;
  update_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (++steps_here_ == 1) require_samples_of_all_ranks();
  if (steps_here_ == 1 || steps_here_ % check_every_ == 0) require_same_replicas();
  return result;
}

// A step that fails has not happened, for the statistics either.
double DistributedOptimizer::finite_norm() {
  try {
    return norm_of_gradients();
  } catch (const NotFinite&) {
    put_statistics_back();
    throw;
  }
}

void DistributedOptimizer::update(double rate) {
  if (!options_.shared_values) return optimizer_.step(rate);
  engine_.barrier_blocking("optimizer/read");  // nobody goes back over the values any more
  optimizer_.step(rate);
  engine_.barrier_blocking("optimizer/updated");
}

void DistributedOptimizer::require_samples_of_all_ranks() {
  const std::array<std::uint64_t, 3> mine{samples_, global_batch_, check_every_};
  const auto all = engine_.allgather_blocking("optimizer/samples", mine);
  std::uint64_t samples = 0;
  std::vector<std::string> shares;
  std::vector<std::string> intervals;
  bool right = true;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) samples += all[at];
  for (std::size_t at = 0; at < all.size(); at += mine.size()) {
    right = right && (all[at + 1] == 0 || all[at + 1] == samples);
    shares.push_back(std::to_string(all[at]) + " of " + std::to_string(all[at + 1]));
    intervals.push_back(std::to_string(all[at + 2]) + " steps");
  }
  if (!right) {
    throw AgreedError(
        "the " + std::to_string(shares.size()) + " ranks have taken " + std::to_string(samples) +
            " samples together in their first step, " + grouped_by_value(shares) +
            ": call Dataset::shard(rank, ranks) on each rank, and divide each loss by "
            "StepBatch::global_size",
        0, kExitConfiguration);
  }
  if (std::ranges::count(intervals, intervals.front()) == std::ssize(intervals)) return;
  throw AgreedError("the ranks are to be compared every " + grouped_by_value(intervals) +
                        ": give RONDE_CHECK to all ranks, or to none",
                    0, kExitConfiguration);
}

void DistributedOptimizer::require_same_replicas() {
  if (engine_.size() == 1) return;
  // Two counters, as floats by their bits, before the tensors.
  std::array<std::uint64_t, 2> counts{global_step_, optimizer_.steps()};
  std::array<float, 4> counters{};
  std::memcpy(counters.data(), counts.data(), sizeof counts);
  std::vector<StateTensor> tensors{{"the number of steps", {counters.size()}, counters}};
  for (const Parameter* const parameter : parameters_) {
    tensors.push_back({parameter->name(), parameter->shape(), parameter->value()});
  }
  for (StateTensor& one : optimizer_.state()) tensors.push_back(std::move(one));
  for (const StateTensor& one : statistics_) {
    if (one.of_all_ranks) tensors.push_back(one);
  }
  const std::string difference = difference_of(engine_, tensors);
  if (difference.empty()) return;
  throw AgreedError("the ranks differ after step " + std::to_string(global_step_) + ": " +
                        difference +
                        ": call broadcast_state() before the first step, and write into tensors on "
                        "all ranks alike; if a restart goes further, suspect a host's memory",
                    0);
}

double DistributedOptimizer::norm_of_gradients() const {
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

void DistributedOptimizer::scale_gradients(float factor) {
  for (const Parameter* const parameter : parameters_) {
    for (float& value : parameter->gradient()) value *= factor;
  }
}

std::string DistributedOptimizer::settings() const {
  std::string text = text_of(options_.schedule);
  if (options_.clip_norm != 0.0) text += "; clipped to " + number_text(options_.clip_norm);
  if (options_.wire == Compression::kF16) text += "; sent as f16";
  if (options_.wire == Compression::kBf16) text += "; sent as bf16";
  return text;
}

}  // namespace ronde::trainer
