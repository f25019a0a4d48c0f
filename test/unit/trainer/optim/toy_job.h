// SPDX-License-Identifier: Apache-2.0
// A small model that needs no kernels, and its training by the ranks of a job in this process.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <span>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/local_ranks.h"

namespace ronde::trainer {

// Samples by their numbers in the data set.
struct Samples {
  std::size_t first = 0;
  std::size_t last = 0;  // one past the end

  [[nodiscard]] std::size_t size() const { return last - first; }
  // Part number `part` of `parts`; some are empty where there are fewer samples.
  [[nodiscard]] Samples part(std::size_t part, std::size_t parts) const {
    return {first + size() * part / parts, first + size() * (part + 1) / parts};
  }
};

// sum(sigmoid(x * scale + shift) * weight), and "spare" where it takes part.
struct Toy {
  static constexpr std::size_t kFeatures = 37;  // no multiple of a vector or a cache line

  explicit Toy(std::uint64_t seed = 1) {
    Generator generator(seed);
    for (Parameter* const parameter : parameters()) {
      for (float& value : parameter->value()) value = generator.uniform(-1.0F, 1.0F);
    }
  }

  std::vector<Parameter*> parameters() { return {&scale, &shift, &weight, &spare}; }

  Tensor operator()(const Tensor& x) {
    Tape& tape = x.tape();
    return sum(sigmoid(x * tape.use(scale) + tape.use(shift)) * tape.use(weight), 1);
  }

  // The loss of `samples` in a step of `global_batch`.
  Loss loss(Tape& tape, Samples samples, std::size_t global_batch, bool with_spare) {
    std::vector<float> inputs;
    std::vector<float> targets;
    for (std::size_t i = samples.first; i < samples.last; ++i) {
      Generator generator(99, i);
      for (std::size_t j = 0; j < kFeatures; ++j) inputs.push_back(generator.uniform(-2.0F, 2.0F));
      targets.push_back(generator.uniform(-3.0F, 3.0F));
    }
    tape.begin();
    Tensor output = (*this)(tape.constant({samples.size(), kFeatures}, inputs));
    if (with_spare) output = output + sum(tape.use(spare)) * 0.125F;
    return mean_squared_error(output, targets, global_batch);
  }

  Parameter scale{"toy/scale", {kFeatures}};
  Parameter shift{"toy/shift", {kFeatures}};
  Parameter weight{"toy/weight", {kFeatures}};
  Parameter spare{"toy/spare", {5}};
};

struct Training {
  int ranks = 1;
  RuleOptions optimizer{};
  OptimizerOptions options{};
  std::vector<std::size_t> batches{};  // the samples of each step, over all ranks
};

inline void append_bits(std::vector<std::uint32_t>& bits, std::span<const float> values) {
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
}

// Cut into parts as the training loop does: rank r has the parts r * k to r * k + k - 1. Where a
// part is empty, every other one has a loss that depends on nothing; every other part uses "spare".
inline void train_step(Optimizer& optimizer, Tape& tape, Toy& toy, const Training& training,
                       int rank, Samples batch) {
  const std::size_t each = training.options.accumulate;
  const std::size_t first = static_cast<std::size_t>(rank) * each;
  for (std::size_t part = first; part < first + each; ++part) {
    const Samples mine = batch.part(part, static_cast<std::size_t>(training.ranks) * each);
    if (mine.size() == 0 && part % 2 == 1) {
      optimizer.backward(tape, Loss{});
    } else {
      optimizer.backward(tape, toy.loss(tape, mine, batch.size(), part % 2 == 0));
    }
  }
  optimizer.step();
}

// The bits of all parameters, and of the optimiser's state, of each rank.
inline std::vector<std::vector<std::uint32_t>> train(const Training& training) {
  std::vector<std::vector<std::uint32_t>> results(static_cast<std::size_t>(training.ranks));
  run_ranks(training.ranks, [&](const LocalJob& job, int rank) {
    Toy toy;
    JobRank strategy(job, rank);
    Model model(toy);
    OptimizerOptions options = training.options;
    options.rule = training.optimizer;
    Optimizer optimizer(model, options);
    Tape& tape = strategy.here().tape();
    std::size_t first = 0;
    for (const std::size_t size : training.batches) {
      train_step(optimizer, tape, toy, training, rank, {first, first + size});
      first += size;
    }
    std::vector<std::uint32_t>& bits = results[static_cast<std::size_t>(rank)];
    for (const Parameter* const parameter : toy.parameters()) append_bits(bits, parameter->value());
    for (const StateTensor& tensor : optimizer.rule().state()) append_bits(bits, tensor.values);
  });
  return results;
}

}  // namespace ronde::trainer
