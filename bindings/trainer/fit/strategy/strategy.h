// SPDX-License-Identifier: Apache-2.0
// On which replicas a model is trained: one, several in this process, or those of all processes of
// a job. strategies.h has them. Training is written once, for any of them.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/fit/strategy/cross_device_ops.h"
#include "bindings/trainer/fit/strategy/distributed_dataset.h"
#include "bindings/trainer/fit/strategy/per_replica.h"
#include "bindings/trainer/fit/strategy/replica_threads.h"
#include "bindings/trainer/nn/network.h"
#include "bindings/trainer/optim/gradient_path.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/normalization.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/tape.h"

namespace ronde::trainer {

class Optimizer;

// The replica whose thread this is. Throws TrainerError outside of Strategy::run(); in_step() says
// whether that is so.
[[nodiscard]] bool in_step() noexcept;
[[nodiscard]] Replica& current_replica();
// The strategy of the innermost Scope of this thread; Default where there is none.
[[nodiscard]] Strategy& current_strategy();
// For layers that normalise over the samples of all replicas: CnnOptions::sum_over_ranks.
[[nodiscard]] SumOverRanks sum_over_replicas();

// Throws TrainerError: what belongs together was made under different strategies.
[[noreturn]] void refuse_mixed(const std::string& what);

// While it lives `strategy` is the current one of this thread: models and optimisers that are made
// here are its.
class Scope {
 public:
  explicit Scope(Strategy& strategy);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();
  // The strategy of this thread's innermost; null where there is none.
  [[nodiscard]] static Strategy* innermost() noexcept;

 private:
  Strategy* before_;
};

// Ownership: models, optimisers and data sets of a strategy refer to it, and go first.
//
// Errors: an exception on one replica ends all of them, and the strategy with them: run() throws
// the first one, and every later call says that it was so. AgreedError, which all replicas throw at
// the same point, does not end it, and where a replica throws something else, that is thrown.
//
// Thread safety: belongs to the thread that made it; another one that calls it gets TrainerError.
class Strategy {
 public:
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy();

  [[nodiscard]] const std::string& name() const noexcept { return parts_.name; }  // "Mirrored(2)"
  // The name, and what the strategy has chosen by itself.
  [[nodiscard]] const std::string& description() const noexcept { return description_; }
  // Replicas that train together, over all processes (the workers, where variables are on servers);
  // and those of this process.
  [[nodiscard]] std::size_t num_replicas_in_sync() const noexcept {
    return parts_.workers != 0 ? parts_.workers : size_;
  }
  [[nodiscard]] std::size_t local_replicas() const noexcept { return replicas_.size(); }
  // Whether the first replica of all is in this process: the one that prints and saves.
  [[nodiscard]] bool is_chief() const { return replicas_.front()->is_chief(); }
  // Prints a line, in that process alone.
  void say(const std::string& line) const {
    if (is_chief()) std::puts(line.c_str());
  }

  // Calls step(Replica&, value...) on all replicas of this process at once, each with its
  // own value of each argument, and returns what they return. All processes call it. Of a batch
  // that distribute() has cut, a step is given its Part.
  //   const auto sums = strategy.run([&](Replica& here, const Part& batch) {
  //     return here.minimize(softmax_cross_entropy(model(batch.inputs), batch.labels)); }, batch);
  template <typename Step, typename... Values>
  auto run(Step&& step, const PerReplica<Values>&... values) {
    using Result = std::invoke_result_t<Step&, Replica&,
                                        decltype(given(std::declval<Replica&>(),
                                                       std::declval<const Values&>()))...>;
    if constexpr (std::is_void_v<Result>) {
      on_replicas([&](Replica& here) { step(here, given(here, values[here.local()])...); });
    } else {
      std::vector<std::optional<Result>> results(local_replicas());
      on_replicas([&](Replica& here) {
        results[here.local()].emplace(step(here, given(here, values[here.local()])...));
      });
      std::vector<Result> all;
      all.reserve(results.size());
      for (std::optional<Result>& one : results) all.push_back(std::move(*one));
      return PerReplica<Result>(std::move(all));
    }
  }

  // Over all replicas of all processes, the same result in each. Sums are in the replicas' order.
  // Throws TrainerError where shapes differ. With an axis that side goes away, too (the mean then
  // is over all of its elements, also where replicas have different numbers of them).
  [[nodiscard]] double reduce(ReduceOp op, const PerReplica<double>& values);
  [[nodiscard]] Array reduce(ReduceOp op, const PerReplica<Array>& values,
                             std::optional<std::size_t> axis = {});
  // One after the other along `axis`, in the replicas' order; the other sides must agree.
  [[nodiscard]] Array gather(const PerReplica<Array>& values, std::size_t axis = 0);
  // Those of this process.
  template <typename T>
  [[nodiscard]] static const std::vector<T>& local_results(const PerReplica<T>& values) {
    return values.values();
  }

  // A data set in batches of so many samples of all replicas: each replica reads its own part of
  // each batch (between-graph).
  [[nodiscard]] DistributedDataset distribute(const Dataset& data);
  // The chief alone reads the batches, and sends the others their parts (in-graph); `data` is used
  // in the chief's process alone, but its format everywhere.
  [[nodiscard]] DistributedDataset distribute_from_chief(const Dataset& data);
  // Each process's own data set: the function says which samples it has, in batches of
  // get_per_replica_batch_size(global) times the process's replicas.
  [[nodiscard]] DistributedDataset distribute_from(
      const std::function<Dataset(const InputContext&)>& input);

  // Where variables are on servers: the updates that a batch of all workers is, which schedules
  // count by (else 1), and whether this task reads the data.
  [[nodiscard]] std::size_t steps_per_batch() const noexcept { return parts_.steps_per_batch; }
  [[nodiscard]] bool reads_data() const noexcept { return parts_.reads_data; }
  [[nodiscard]] bool is_served() const noexcept { return parts_.workers != 0; }
  // Whether this task does nothing but look at what others learn.
  [[nodiscard]] bool only_evaluates() const noexcept { return parts_.only_evaluates; }
  // The way of a replica's gradients: the engine sums them, or else the CrossDeviceOps.
  [[nodiscard]] virtual std::unique_ptr<GradientPath> gradient_path(
      Replica& here, const Network& model, UpdateRule& rule, const OptimizerOptions& options);
  // Collective, at the end of a program: nobody leaves before what the others need is done.
  virtual void finish() {}
  // In place of that where this process ends with an error: tells processes that would wait for it.
  virtual void fail(const std::string& /*error*/, int /*exit_code*/) {}

  // For those who build on it.

  // Throws TrainerError where the calling thread is another than that which made the strategy, or
  // is in a step, and once the strategy has ended.
  void require_usable(const char* call) const;
  // Whether replicas share the memory of their variables: only the first updates.
  [[nodiscard]] bool shares_variables() const noexcept { return parts_.shares_variables; }
  [[nodiscard]] int threads_per_replica() const noexcept { return parts_.threads; }
  // Throws TrainerError where the replica is of another strategy than `what` is.
  void require_own(const Replica& here, const char* what) const;
  [[nodiscard]] Replica& replica(std::size_t local) { return *replicas_.at(local); }
  // What every process has, one after the other. Collective over the processes.
  template <typename T>
  [[nodiscard]] std::vector<T> over_processes(const std::string& name, std::vector<T> mine) {
    if (processes() == 1) return mine;
    return run([&](Replica& here) {
             const std::vector<T> nothing;  // the first replica of each process speaks for it
             return here.engine().allgather_blocking("strategy/" + name,
                                                     here.local() == 0 ? mine : nothing);
           })
        .values()
        .front();
  }
  [[nodiscard]] std::size_t processes() const noexcept { return size_ / replicas_.size(); }

 protected:
  struct Parts {
    std::string name;
    std::size_t replicas = 1;                         // of this process
    std::function<Engine(std::size_t replica)> open;  // on its thread; kept no longer
    std::vector<Cores> cores{};                       // of each replica; empty: any
    int threads = 1;                                  // of each replica's kernels
    bool shares_variables = false;
    CrossDeviceOps cross_device{};  // empty: the engines sum
    // Where variables are on servers: how many workers there are, which this is (as many as there
    // are, where the chief sends all of them their parts), and what this task is.
    std::size_t workers = 0;
    std::size_t worker = 0;
    std::size_t steps_per_batch = 1;
    bool is_chief = true;
    bool reads_data = true;
    bool only_evaluates = false;
  };
  explicit Strategy(Parts parts);
  std::string description_;

 private:
  friend class Replica;
  friend class Optimizer;
  template <typename Value>
  static const Value& given(Replica& /*here*/, const Value& value) {
    return value;  // NOLINT(bugprone-return-const-ref-from-parameter): the caller's argument
  }
  static Part given(Replica& here, const StepBatch& batch) { return here.begin(batch); }
  static Part given(Replica& here, const std::reference_wrapper<const StepBatch>& batch) {
    return here.begin(batch);
  }
  void on_replicas(const std::function<void(Replica&)>& body);
  void end_replica(Replica& replica) const;
  [[nodiscard]] std::vector<Array> everywhere(const PerReplica<Array>& values,
                                              std::optional<std::size_t> free_axis);

  void sum_gradients(Replica& here, std::span<Parameter* const> parameters);

  Parts parts_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::size_t size_ = 0;
  std::string ended_;  // by which error; empty: it has not
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Optimizer*> optimizers_;               // that live now
  std::vector<std::span<Parameter* const>> summed_;  // of each replica, for cross_device
  ReplicaThreads threads_;
};

// Of a loss of each sample ({samples}), which is divided as those of losses.h are.
[[nodiscard]] Loss compute_average_loss(const Tensor& per_example, std::size_t global_batch = 0);
// A regularisation that every replica computes from the same parameters counts once: divided by the
// replicas in sync. Add it to Loss::value.
[[nodiscard]] Tensor scale_regularisation(const Tensor& regularisation);

}  // namespace ronde::trainer
