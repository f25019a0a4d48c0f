// SPDX-License-Identifier: Apache-2.0
// Replicas, what they return, and how they end.
#include "bindings/trainer/fit/strategy/strategy.h"

#include <algorithm>
#include <cstdint>
#include <exception>

#include "bindings/trainer/optim/replicas.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/operations.h"

namespace ronde::trainer {

namespace {

// What is current on this thread.
struct Current {
  Strategy* strategy = nullptr;  // of the innermost scope
  Replica* replica = nullptr;    // in a step
};

Current& current() {
  static thread_local Current of_thread;
  return of_thread;
}

// The sides in front of an axis, and behind it, as numbers of elements.
struct Around {
  std::size_t before = 1;
  std::size_t after = 1;
};

Around around(const Shape& shape, std::size_t axis) {
  Around sides;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != axis) (i < axis ? sides.before : sides.after) *= shape[i];
  }
  return sides;
}

}  // namespace

Replica::Replica(Strategy& strategy, std::size_t local, Engine engine)
    : strategy_(strategy),
      local_(local),
      engine_(std::move(engine)),
      tape_(strategy.threads_per_replica()),
      rank_(engine_.rank()),
      size_(engine_.size()),
      shares_memory_(strategy.shares_variables()),
      is_chief_(rank_ == 0 && strategy.parts_.is_chief) {}

Part Replica::begin(const StepBatch& batch) {
  const Batch& part = batch.parts.front();
  tape_.begin({.epoch = batch.epoch,
               .samples = part.samples,
               .repetitions = part.repetitions,
               .global_batch = batch.global_size});
  return {tape_.borrow(part.shape, part.inputs), part.labels, part.targets, part.samples,
          batch.global_size};
}

Dataset Replica::shard_to_score(const Dataset& data) const {
  return strategy_.is_served() ? data.shard(0, 1) : shard(data);
}

Dataset Replica::shard(const Dataset& data, std::size_t parts) const {
  const bool own = data.is_own();
  const std::size_t replicas = own ? strategy_.local_replicas() : strategy_.num_replicas_in_sync();
  try {
    if (data.is_own() && strategy_.is_served()) {
      throw TrainerError(strategy_.name() +
                         " gives each worker its share of one data set: leave Dataset::own() out");
    }
    if (own && strategy_.reads_data()) return data.shard(local_, replicas, parts).alone();
    if (strategy_.reads_data() && data.samples().value_or(replicas) < replicas) {
      throw TrainerError("the data set has " + std::to_string(*data.samples()) + " samples, and " +
                         strategy_.name() + " has " + std::to_string(replicas) +
                         " replicas: give each of them one, or use fewer replicas");
    }
    if (!strategy_.is_served()) {
      return data.shard(static_cast<std::size_t>(rank_), replicas, parts);
    }
    const std::size_t worker = strategy_.parts_.worker;
    return worker < replicas ? data.shard(worker, replicas, parts).alone()
                             : data.shard(0, 1, replicas);
  } catch (const TrainerError& error) {  // the same on all replicas
    throw AgreedError(error.what(), 0, kExitConfiguration);
  }
}

bool in_step() noexcept { return current().replica != nullptr; }

Replica& current_replica() {
  if (current().replica != nullptr) return *current().replica;
  throw TrainerError("this is no replica's thread: call it in a step, under Strategy::run()");
}

SumOverRanks sum_over_replicas() {
  if (current_strategy().is_served()) {
    throw TrainerError(
        "workers that share variables on servers are at different steps, so no normalisation sums "
        "over their samples: use that of each worker's own (--batch-norm local)",
        kExitConfiguration);
  }
  return [](std::span<double> sums) {
    current_replica().allreduce("strategy/statistics", sums, Reduction::kSum);
  };
}

Scope::Scope(Strategy& strategy) : before_(std::exchange(current().strategy, &strategy)) {
  try {
    strategy.require_usable("Scope");
  } catch (...) {
    current().strategy = before_;
    throw;
  }
}

Strategy* Scope::innermost() noexcept { return current().strategy; }

Scope::~Scope() { current().strategy = before_; }

Strategy::Strategy(Parts parts)
    : description_(parts.name),
      parts_(std::move(parts)),
      replicas_(parts_.replicas),
      summed_(parts_.replicas),
      threads_(parts_.replicas) {
  threads_.run(
      [this](std::size_t local) {
        replicas_[local].reset(new Replica(*this, local, parts_.open(local)));
      },
      [](std::size_t /*local*/) {});
  parts_.open = nullptr;
  threads_.pin(parts_.cores);  // from now on, so that the engine's own threads are free
  size_ = static_cast<std::size_t>(replicas_.front()->engine().size());
}

Strategy::~Strategy() {
  // Engines close together, each on its replica's thread.
  threads_.run([this](std::size_t local) { replicas_[local].reset(); }, [](std::size_t) {});
}

void Strategy::require_usable(const char* call) const {
  if (current().replica != nullptr) {
    throw TrainerError(std::string(call) + " is called in a step of " +
                       current().replica->strategy().name() + ": call it outside of run()");
  }
  if (std::this_thread::get_id() != thread_) {
    throw TrainerError(std::string(call) + ": another thread has made this " + name() +
                       ": a strategy belongs to one thread, so make one in each");
  }
  if (ended_.empty()) return;
  throw TrainerError(std::string(call) + ": this " + name() + " has ended with an error (" +
                     ended_ + "): make a new one, with models of its own");
}

void Strategy::on_replicas(const std::function<void(Replica&)>& body) {
  require_usable("run()");
  try {
    threads_.run(
        [&](std::size_t local) {
          // What a step makes or asks for, it finds here.
          struct Here {
            Strategy* before;
            ~Here() {
              current().strategy = before;
              current().replica = nullptr;
            }
          };
          const Here here{std::exchange(current().strategy, this)};
          current().replica = replicas_[local].get();
          body(*replicas_[local]);
        },
        [this](std::size_t local) { end_replica(*replicas_[local]); });
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    if (size_ > 1) ended_ = error.what();
    throw;
  } catch (...) {
    if (size_ > 1) ended_ = "an exception of another kind";
    throw;
  }
}

// In the handler of its exception. The others may wait for this replica, or will: without its
// engine they get an error.
void Strategy::end_replica(Replica& replica) const {
  if (size_ == 1) return;
  try {
    replica.engine().close();
  } catch (const std::exception&) {  // of what was under way
    return;
  }
}

void refuse_mixed(const std::string& what) {
  throw TrainerError(what + ": make both while the Scope of the strategy that trains them lives",
                     kExitConfiguration);
}

void Strategy::require_own(const Replica& here, const char* what) const {
  if (&here.strategy() == this) return;
  refuse_mixed(std::string(what) + " of " + name() + " is used in a step of " +
               here.strategy().name());
}

std::unique_ptr<GradientPath> Strategy::gradient_path(Replica& here, const Network& model,
                                                      UpdateRule& /*rule*/,
                                                      const OptimizerOptions& options) {
  if (!parts_.cross_device) {
    return averaged_path(here.engine(), model.parameters(), options);
  }
  if (options.wire != Compression::kNone) {
    throw TrainerError(
        "cross-device operations sum f32, and never see a compressed gradient: "
        "leave OptimizerOptions::wire (--wire) at f32, or take NcclAllReduce",
        kExitConfiguration);
  }
  return summed_path([this, &here, &model] { sum_gradients(here, model.parameters()); });
}

// Each replica sums every so manieth tensor of all of them, between two barriers.
void Strategy::sum_gradients(Replica& here, std::span<Parameter* const> parameters) {
  summed_[here.local()] = parameters;
  here.engine().barrier_blocking("strategy/sum");
  std::vector<std::span<float>> same(summed_.size());
  for (std::size_t i = here.local(); i < parameters.size(); i += same.size()) {
    for (std::size_t other = 0; other < same.size(); ++other) {
      same[other] = summed_[other][i]->gradient();
    }
    parts_.cross_device(same);
  }
  here.engine().barrier_blocking("strategy/summed");
}

double Strategy::reduce(ReduceOp op, const PerReplica<double>& values) {
  require_usable("reduce()");
  double sum = 0.0;
  for (const double one : over_processes("reduce", values.values())) sum += one;
  return op == ReduceOp::kMean ? sum / static_cast<double>(size_) : sum;
}

// The arrays of all replicas. Sides other than `free_axis` must agree.
std::vector<Array> Strategy::everywhere(const PerReplica<Array>& values,
                                        std::optional<std::size_t> free_axis) {
  require_usable("reduce() or gather()");
  std::vector<std::uint64_t> shapes;
  std::vector<float> numbers;
  for (const Array& one : values.values()) {
    if (one.values.size() != elements_of(one.shape)) {
      throw TrainerError("a replica returns an Array of " + text_of(one.shape) + " with " +
                         std::to_string(one.values.size()) + " numbers: give it all its elements");
    }
    shapes.push_back(one.shape.size());
    shapes.insert(shapes.end(), one.shape.begin(), one.shape.end());
    numbers.insert(numbers.end(), one.values.begin(), one.values.end());
  }
  shapes = over_processes("shapes", std::move(shapes));
  numbers = over_processes("numbers", std::move(numbers));
  std::vector<Array> all;
  std::vector<std::string> texts;
  bool same = true;
  auto number = numbers.cbegin();
  for (std::size_t at = 0; at < shapes.size(); at += 1 + shapes[at]) {
    Array one;
    one.shape.assign(shapes.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                     shapes.begin() + static_cast<std::ptrdiff_t>(at + 1 + shapes[at]));
    const auto size = static_cast<std::ptrdiff_t>(elements_of(one.shape));
    one.values.assign(number, number + size);
    number += size;
    texts.push_back(text_of(one.shape));
    Shape fixed = one.shape;
    Shape first = all.empty() ? fixed : all.front().shape;
    if (free_axis && fixed.size() == first.size() && *free_axis < fixed.size()) {
      fixed[*free_axis] = first[*free_axis];
    }
    same = same && fixed == first && (!free_axis || *free_axis < fixed.size());
    all.push_back(std::move(one));
  }
  if (same) return all;
  throw TrainerError(
      "the replicas return " + grouped_by_value(texts) +
      (free_axis ? ", which cannot be put together along side " + std::to_string(*free_axis)
                 : ", which cannot be added") +
      ": return the same shape on each, or name the side that differs as the axis");
}

Array Strategy::reduce(ReduceOp op, const PerReplica<Array>& values,
                       std::optional<std::size_t> axis) {
  const std::vector<Array> all = everywhere(values, axis);
  Array result{all.front().shape, {}};
  const std::size_t at = axis.value_or(result.shape.size());
  const Around sides = around(result.shape, at);
  if (axis) result.shape.erase(result.shape.begin() + static_cast<std::ptrdiff_t>(at));
  std::vector<double> sums(sides.before * sides.after, 0.0);
  std::size_t count = 0;
  for (const Array& one : all) {
    const std::size_t side = axis ? one.shape[at] : 1;
    count += side;
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      const std::size_t after = i % sides.after;
      const std::size_t before = i / (sides.after * side);
      sums[before * sides.after + after] += one.values[i];
    }
  }
  const double divisor =
      op == ReduceOp::kMean ? static_cast<double>(std::max<std::size_t>(count, 1)) : 1.0;
  for (const double sum : sums) result.values.push_back(static_cast<float>(sum / divisor));
  return result;
}

Array Strategy::gather(const PerReplica<Array>& values, std::size_t axis) {
  const std::vector<Array> all = everywhere(values, axis);
  Array result{all.front().shape, {}};
  result.shape[axis] = 0;
  for (const Array& one : all) result.shape[axis] += one.shape[axis];
  const Around sides = around(result.shape, axis);
  for (std::size_t i = 0; i < sides.before; ++i) {
    for (const Array& one : all) {
      const std::size_t row = one.shape[axis] * sides.after;
      const auto first = one.values.begin() + static_cast<std::ptrdiff_t>(i * row);
      result.values.insert(result.values.end(), first, first + static_cast<std::ptrdiff_t>(row));
    }
  }
  return result;
}

Loss compute_average_loss(const Tensor& per_example, std::size_t global_batch) {
  Loss loss;
  loss.global_batch = global_batch != 0 ? global_batch : per_example.tape().pass().global_batch;
  loss.value = sum(per_example);
  if (loss.global_batch != 0) {
    loss.value = loss.value * (1.0F / static_cast<float>(loss.global_batch));
  }
  for (const float one : per_example.values()) loss.sum += one;
  loss.samples = per_example.shape().empty() ? 1 : per_example.side(0);
  return loss;
}

Tensor scale_regularisation(const Tensor& regularisation) {
  return regularisation * (1.0F / static_cast<float>(current_strategy().num_replicas_in_sync()));
}

}  // namespace ronde::trainer
