// SPDX-License-Identifier: Apache-2.0
// Ranks that differ, and passes that do what would make them differ, are found.
#include "bindings/trainer/optim/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/local_ranks.h"
#include "test/unit/trainer/optim/toy_job.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using Bits = std::vector<std::uint32_t>;

void flip_a_bit(std::span<float> values, std::size_t at = 1) {
  values[at] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[at]) ^ 1U);
}

TEST(HashOf, DependsOnEveryBit) {
  for (const std::size_t size : {1U, 15U, 16U, 17U, 100U}) {
    std::vector<float> values(size, 1.0F);
    const std::uint64_t before = hash_of(values);
    EXPECT_EQ(hash_of(values), before);
    for (std::size_t i = 0; i < size; ++i) {
      flip_a_bit(values, i);
      EXPECT_NE(hash_of(values), before) << size << ", " << i;
      flip_a_bit(values, i);
    }
    values.push_back(0.0F);
    EXPECT_NE(hash_of(values), before) << size;
  }
}

// The texts of the AgreedErrors of the ranks; "none" for a rank without one.
std::vector<std::string> errors_of(int ranks,
                                   const std::function<void(const LocalJob&, int)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks), "none");
  run_ranks(ranks, [&](const LocalJob& job, int rank) {
    try {
      body(job, rank);
    } catch (const AgreedError& error) {
      errors[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return errors;
}

// With RONDE_CHECK in the environment as long as it lives.
class Check {
 public:
  explicit Check(const char* value) { ::setenv("RONDE_CHECK", value, 1); }
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;
  ~Check() { ::unsetenv("RONDE_CHECK"); }
};

// A job of Adam over a toy with statistics: `spoil` may write into anything before each step.
struct Job {
  Toy toy;
  std::vector<float> sums = std::vector<float>(3, 0.5F);
  std::vector<float> own = std::vector<float>(3, 0.5F);
  std::uint64_t step = 0;  // from 1
  int rank = 0;
  UpdateRule* adam = nullptr;

  Tensor operator()(const Tensor& input) { return toy(input); }
  std::vector<Parameter*> parameters() { return toy.parameters(); }
  std::vector<StateTensor> statistics() {
    return {{"norm/mean", {3}, sums, true}, {"own/mean", {3}, own, false}};
  }
};

std::vector<std::string> run_job(std::uint64_t steps, const std::function<void(Job&)>& spoil) {
  return errors_of(3, [&](const LocalJob& local, int rank) {
    Job job;
    job.rank = rank;
    JobRank strategy(local, rank);
    Model model(job);
    Optimizer optimizer(model, adam(0.01));
    job.adam = &optimizer.rule();
    Tape& tape = strategy.here().tape();
    for (job.step = 1; job.step <= steps; ++job.step) {
      if (spoil) spoil(job);
      const auto first = static_cast<std::size_t>(rank);
      optimizer.backward(tape, job.toy.loss(tape, {first, first + 1}, 3, true));
      optimizer.step();
    }
  });
}

TEST(Replicas, OneBitThatDiffersIsFoundInItsStep) {
  const Check check("replicas");
  EXPECT_THAT(run_job(5, {}), Each("none"));
  const auto run_with = [](const std::function<std::span<float>(Job&)>& what) {
    return run_job(5, [&](Job& job) {
      if (job.rank == 1 && job.step == 3) flip_a_bit(what(job));
    });
  };
  EXPECT_THAT(run_with([](Job& job) { return job.toy.weight.value(); }),
              Each(AllOf(testing::StartsWith("the ranks differ after step 3: toy/weight is "),
                         HasSubstr(" on ranks 0, 2 and "), HasSubstr(" on rank 1: "))));
  EXPECT_THAT(run_with([](Job& job) { return std::span(job.sums); }),
              Each(AllOf(HasSubstr("after step 3: norm/mean is "), HasSubstr("on ranks 0, 2"))));
  EXPECT_THAT(run_with([](Job& job) { return std::span(job.own); }), Each("none"))
      << "a rank's own";
  // A bit of a moment shows in the parameter that it moves, or else in itself.
  const auto moments = run_with([](Job& job) {
    const auto state = job.adam->state();
    return std::ranges::find(state, "moment2/toy/spare", &StateTensor::name)->values;
  });
  EXPECT_THAT(moments, Each(AllOf(HasSubstr("after step 3: "), HasSubstr("toy/spare is "),
                                  HasSubstr("on ranks 0, 2"))));
}

TEST(Replicas, AreComparedInTheFirstStepAndInEach500thAnyway) {
  const auto in_step = [](std::uint64_t steps, std::uint64_t bad) {
    return run_job(steps, [bad](Job& job) {
      if (job.rank == 2 && job.step == bad)
        job.toy.scale.value()[1] += 0.5F;  // training would heal a bit
    });
  };
  EXPECT_THAT(in_step(2, 1), Each(HasSubstr("the ranks differ after step 1: toy/scale is ")))
      << "as without broadcast_state()";
  EXPECT_THAT(in_step(499, 3), Each("none"));
  EXPECT_THAT(in_step(500, 3), Each(HasSubstr("the ranks differ after step 500: toy/scale is ")));
}

TEST(Replicas, ThatCountTheirStepsDifferentlyAreFound) {
  const Check check("replicas");
  EXPECT_THAT(run_job(1, [](Job& job) { job.adam->set_steps(job.rank == 0 ? 7 : 8); }),
              Each(HasSubstr("the number of steps is ")));
}

// Says when its optimiser has read the environment.
class Watched final : public JobRank {
 public:
  Watched(const LocalJob& job, int rank, std::latch& read) : JobRank(job, rank), read_(read) {}
  [[nodiscard]] std::unique_ptr<GradientPath> gradient_path(
      Replica& here, const Network& model, UpdateRule& rule,
      const OptimizerOptions& options) override {
    read_.count_down();
    return Strategy::gradient_path(here, model, rule, options);
  }

 private:
  std::latch& read_;
};

TEST(Replicas, ThatAreToBeComparedInOtherStepsAreFound) {
  std::latch first_has_read(1);
  std::latch second_has_read(1);
  const auto errors = errors_of(2, [&](const LocalJob& job, int rank) {
    Toy toy;
    const Watched strategy(job, rank, rank == 0 ? first_has_read : second_has_read);
    if (rank == 1) first_has_read.wait();
    const Check check(rank == 0 ? "replicas" : "off");
    Model model(toy);
    Optimizer optimizer(model, {});
    optimizer.step();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("every 1 steps on rank 0 and 500 steps on rank 1"),
                                 HasSubstr("give RONDE_CHECK to all ranks"))));
}

std::vector<std::string> run_shares(const std::function<Samples(int)>& share, std::size_t global) {
  return errors_of(2, [&](const LocalJob& job, int rank) {
    Toy toy;
    JobRank strategy(job, rank);
    Model model(toy);
    Optimizer optimizer(model, {});
    Tape& tape = strategy.here().tape();
    optimizer.backward(tape, toy.loss(tape, share(rank), global, true));
    optimizer.step();
  });
}

TEST(Samples, ThatSeveralRanksTakeAreCountedInTheFirstStep) {
  const auto half = [](int rank) { return Samples{0, 6}.part(static_cast<std::size_t>(rank), 2); };
  EXPECT_THAT(run_shares(half, 6), Each("none"));
  EXPECT_THAT(run_shares([](int) { return Samples{0, 6}; }, 6),
              Each(AllOf(HasSubstr("the 2 ranks have taken 12 samples together"),
                         HasSubstr("6 of 6 on ranks 0, 1"), HasSubstr("shard(rank, ranks)"))));
  EXPECT_THAT(run_shares(half, 12), Each(HasSubstr("taken 6 samples"))) << "some are nobody's";
  EXPECT_THAT(run_shares([](int rank) { return rank == 0 ? Samples{0, 6} : Samples{}; }, 6),
              Each("none"));
}

TEST(Listed, WhatAPassUsesAndTheOptimiserDoesNotKnowIsRefused) {
  run_ranks(1, [](const LocalJob& job, int rank) {
    struct Part : Toy {
      std::vector<Parameter*> parameters() { return {&scale}; }
    } toy;
    JobRank strategy(job, rank);
    Model model(toy);
    Tape& tape = strategy.here().tape();
    const auto error_with = [&](const OptimizerOptions& options) {
      Optimizer optimizer(model, options);
      return error_of([&] { optimizer.backward(tape, toy.loss(tape, {0, 2}, 2, false)); });
    };
    EXPECT_THAT(error_with({}), AllOf(HasSubstr("toy/shift"),
                                      HasSubstr("are used but not listed by parameters()")));
    EXPECT_EQ(error_with({.part_of_model = true}), "no error");
  });
}

TEST(Listed, SoAreStatistics) {
  run_ranks(1, [](const LocalJob& job, int rank) {
    JobRank strategy(job, rank);
    Tape& tape = strategy.here().tape();
    const auto error_with = [&](bool lists) {
      struct Norm {
        BatchNorm layer;
        bool lists;
        Tensor operator()(const Tensor& input) { return layer(input); }
        std::vector<Parameter*> parameters() { return layer.parameters(); }
        std::vector<StateTensor> statistics() {
          return lists ? layer.statistics() : std::vector<StateTensor>{};
        }
      } norm{{"norm", 2}, lists};
      Model model(norm);
      Optimizer optimizer(model, {});
      tape.begin();
      const Tensor x = tape.constant({2, 2}, std::array<float, 4>{1, 2, 3, 4});
      Loss loss = mean_squared_error(norm(x), std::array<float, 4>{}, 2);
      return error_of([&] { optimizer.backward(tape, loss); });
    };
    EXPECT_THAT(error_with(false),
                HasSubstr("norm/mean, norm/variance are used but not listed by statistics()"));
    EXPECT_EQ(error_with(true), "no error");
  });
}

// A step of 2 ranks that take 3 samples each; the bits of the parameters.
Bits step_of(Optimizer& optimizer, Toy& toy, int rank) {
  Tape tape;
  const auto first = static_cast<std::size_t>(rank) * 3;
  optimizer.backward(tape, toy.loss(tape, {first, first + 3}, 6, true));
  optimizer.step();
  Bits bits;
  for (const Parameter* one : toy.parameters()) append_bits(bits, one->value());
  return bits;
}

TEST(Board, AnOptimiserThatReplacesAnotherKeepsTheRanksTogether) {
  std::vector<Bits> bits(2);
  run_ranks(2, [&](const LocalJob& job, int rank) {
    Toy toy;
    const JobRank strategy(job, rank);
    Model model(toy);
    const auto make = [&] {
      return std::make_unique<Optimizer>(model, OptimizerOptions{.gradients = Gradients::kBoard});
    };
    auto optimizer = make();
    step_of(*optimizer, toy, rank);
    optimizer = make();  // while the old one is still there
    step_of(*optimizer, toy, rank);
    bits[static_cast<std::size_t>(rank)] = step_of(*optimizer, toy, rank);
  });
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(Board, AnOptimiserWhoseGradientsHaveMovedIsRefused) {
  run_ranks(2, [](const LocalJob& job, int rank) {
    Toy toy;
    const JobRank strategy(job, rank);
    Model model(toy);
    Optimizer plain(model, {});
    const Optimizer board(model, {.gradients = Gradients::kBoard});
    EXPECT_THAT(error_of([&] { step_of(plain, toy, rank); }),
                HasSubstr("the gradient of toy/scale lies elsewhere"));
  });
}

TEST(SumsOverRanks, APassThatIsLeftOutEndsTheStepOnEveryRank) {
  for (const bool with_a_loss : {false, true}) {
    std::string error = "none";
    EXPECT_ANY_THROW(run_ranks(2, [&](const LocalJob& job, int rank) {
      JobRank strategy(job, rank);
      BatchNorm norm("norm", 2, [&](std::span<double> sums) {
        strategy.engine().allreduce_blocking("norm", sums, ronde::sum);
      });
      Model model(norm);
      Optimizer optimizer(model, {});
      Tape& tape = strategy.here().tape();
      if (rank == 1) {
        error = error_of([&] {
          if (with_a_loss) optimizer.backward(tape, Loss{});
          optimizer.step();
        });
        return;  // its engine closes, which the other one's wait ends with
      }
      tape.begin();
      const Tensor x = tape.constant({2, 2}, std::array<float, 4>{1, 2, 3, 4});
      optimizer.backward(tape, mean_squared_error(norm(x), std::array<float, 4>{}, 2));
      optimizer.step();
    }));
    EXPECT_THAT(error, AllOf(HasSubstr("a pass is left out"), HasSubstr("also without samples")));
  }
}

TEST(BroadcastState, SaysThatValuesHaveChanged) {
  run_ranks(1, [](const LocalJob& job, int rank) {
    Toy toy;
    const JobRank strategy(job, rank);
    Model model(toy);
    Optimizer optimizer(model, {});
    const std::uint64_t before = toy.weight.version();
    optimizer.broadcast_state();
    EXPECT_GT(toy.weight.version(), before);
  });
}

}  // namespace
}  // namespace ronde::trainer
