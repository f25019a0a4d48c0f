// SPDX-License-Identifier: Apache-2.0
// A model under a strategy: one object in the program, a copy on each replica.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/strategy/metric.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/fit/strategy/strategy.h"
#include "bindings/trainer/nn/network.h"
#include "bindings/trainer/nn/sequence.h"

namespace ronde::trainer {

// The callbacks of a replica, made on its thread, on every replica alike.
using CallbackMaker = std::function<std::vector<std::unique_ptr<Callback>>(Replica& here)>;

// What a program has: it is compiled, fitted, evaluated and called, on every replica's copy alike.
//
// Thread safety: belongs to the strategy's thread; in a step, each replica uses its own copy.
class Model {
 public:
  // `maker` returns a model of any class (nn/network.h), or a std::unique_ptr to one; it is called
  // for each replica of this process, one after the other on this thread, and makes the same model
  // each time.
  template <typename Maker>
    requires std::invocable<Maker&> && (!std::same_as<std::remove_cvref_t<Maker>, Model>)
  explicit Model(Maker&& maker) : Model(current_strategy()) {
    for (std::size_t i = 0; i < strategy_.local_replicas(); ++i) {
      if constexpr (requires { *maker(); }) {
        add(std::shared_ptr(maker()));
      } else {
        using M = std::invoke_result_t<Maker&>;
        add(std::shared_ptr<M>(new M(maker())));  // which need not be movable
      }
    }
  }
  // Layers one after the other, of which each replica makes its own: now, where input() says the
  // shape of a sample, else when build() does, or the first data set.
  explicit Model(std::vector<LayerMaker> layers, std::uint64_t seed = 1);
  void build(const Shape& sample);
  // One that the program has made, for a strategy with one replica in this process. It must outlive
  // this object.
  template <Trainable M>
  explicit Model(M& own) : Model(current_strategy()) {
    require_one_replica();
    add(std::shared_ptr<M>(std::shared_ptr<void>(), &own));
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();

  [[nodiscard]] Strategy& strategy() const noexcept { return strategy_; }
  // What compile() has made.
  [[nodiscard]] Optimizer& optimizer() const;
  // In a step: this replica's copy. Throws TrainerError on a replica of another strategy.
  Tensor operator()(const Tensor& input) const { return network()(input); }
  // This replica's copy in a step, and the first one otherwise.
  [[nodiscard]] const Network& network() const;
  [[nodiscard]] const std::vector<Parameter*>& parameters() const { return network().parameters(); }
  [[nodiscard]] std::string parameter_hash() const { return network().parameter_hash(); }
  [[nodiscard]] const Network& copy(std::size_t local) const;

  // What to train with, and what to watch (metric.h). `seed` is what dropout is drawn from.
  void compile(const OptimizerOptions& optimizer, const LossFunction& loss,
               const std::vector<Metric>& metrics = {}, std::uint64_t seed = 1);
  // `data` in batches of all replicas together, and not cut between them: fit/fit.h has the rest.
  // A callback must come from the maker, since each replica calls its own. Epochs are counted from
  // call to call, unless the options say where one begins: each has an order and masks of its own.
  FitResult fit(const Dataset& data, const FitOptions& options = {},
                const CallbackMaker& callbacks = {}, const Dataset* validation = nullptr);
  [[nodiscard]] Metrics evaluate(const Dataset& data);
  // All samples, of all replicas and processes, in the data set's order.
  [[nodiscard]] Predictions predict(const Dataset& data);

  // The same from arrays, which each process gives whole: inputs of {samples, ...}, and for each a
  // label of any integer type, or as many floats to predict (integers are always labels); in their
  // order, in batches of so many samples of all replicas. For another order, and data that is not
  // copied, there is Dataset.
  template <std::ranges::range Answers>
  FitResult fit(const Array& inputs, const Answers& answers, std::size_t batch,
                const FitOptions& options = {}, const CallbackMaker& callbacks = {}) {
    return fit(batches_of(inputs, kept(answers), batch), options, callbacks);
  }
  template <std::ranges::range Answers>
  [[nodiscard]] Metrics evaluate(const Array& inputs, const Answers& answers, std::size_t batch) {
    return evaluate(batches_of(inputs, kept(answers), batch));
  }
  [[nodiscard]] Predictions predict(const Array& inputs, std::size_t batch);

  // In a step, once compiled: what takes this replica's steps, for a loop around fit(), as a
  // supervisor's session is.
  [[nodiscard]] Learner& learner() const;
  // In a step: this replica's part of each batch, in as many micro-batches as its optimiser
  // accumulates.
  [[nodiscard]] Dataset shard(const Dataset& data) const;

 private:
  class Copy;
  explicit Model(Strategy& strategy);
  void start();
  void require_one_replica() const;
  template <typename M>
  void add(std::shared_ptr<M> model) {
    Network network(*model);
    add(std::move(model), std::move(network));
  }
  void add(std::shared_ptr<void> owner, Network network);
  template <typename Answers>
  static auto kept(const Answers& answers) {
    using One = std::ranges::range_value_t<Answers>;
    using Kept = std::conditional_t<std::integral<One>, std::int64_t, float>;
    return std::vector<Kept>(std::ranges::begin(answers), std::ranges::end(answers));
  }
  Dataset batches_of(const Array& inputs, const std::vector<std::int64_t>& labels,
                     std::size_t batch);
  Dataset batches_of(const Array& inputs, const std::vector<float>& targets, std::size_t batch);
  void require_same(const Array& inputs, const std::vector<float>& answers);
  [[nodiscard]] Copy& copy_here() const;

  Strategy& strategy_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::size_t epochs_ = 0;  // of all calls of fit()
  std::vector<LayerMaker> layers_;
  std::uint64_t layers_seed_ = 0;
  // What compile() was given, and what it has made of it once there are copies.
  struct Compiled {
    OptimizerOptions options;
    LossFunction loss;
    std::uint64_t seed = 0;
  };
  std::optional<Compiled> compiled_;
  std::unique_ptr<Optimizer> optimizer_;
};

//   Sequential model{dense(128, relu), dense(10)};
//   model.compile(adam(0.001), classification_loss, {"accuracy"});
//   model.fit(data, {.epochs = 5});
class Sequential : public Model {
 public:
  Sequential(std::initializer_list<LayerMaker> layers, std::uint64_t seed = 1)
      : Model(std::vector(layers), seed) {}
};

}  // namespace ronde::trainer
