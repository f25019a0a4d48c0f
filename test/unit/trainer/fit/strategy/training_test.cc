// SPDX-License-Identifier: Apache-2.0
// Training under every strategy: what each cell gives, and the bits of as many processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layers.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/fit/strategy/strategy_kit.h"
#include "test/unit/trainer/fit/toy_training.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  FitResult fit;
  Metrics test;
  std::string hash;
};

Outcome fit_under(Strategy& strategy, std::size_t epochs = 3) {
  const Scope scope(strategy);
  Model model(toy_network);
  model.compile(kToyOptions, classification_loss);
  Outcome outcome;
  outcome.fit = model.fit(toy_batches(), {.epochs = epochs});
  outcome.test =
      model.evaluate(Dataset::from_images(toy_data(101, 2), ImageShape::kFlat).batch(50));
  outcome.hash = model.parameter_hash();
  for (std::size_t i = 0; i < strategy.local_replicas(); ++i) {
    EXPECT_EQ(model.copy(i).parameter_hash(), outcome.hash) << "replica " << i;
  }
  return outcome;
}

// As toy_training.h has it for ranks that open their own engines.
std::string hash_of_ranks(int ranks) {
  return run_toy({.ranks = ranks, .epochs = 1}).hashes.front();
}

TEST(Training, MirroredHasTheBitsOfAsManyRanks) {
  for (const int replicas : {1, 2, 4}) {
    Mirrored strategy(static_cast<std::size_t>(replicas));
    EXPECT_EQ(fit_under(strategy, 1).hash, hash_of_ranks(replicas)) << replicas;
  }
}

// As a user of the installed headers would write it: backwards in place, then handed out.
void of_the_users(std::span<const std::span<float>> replicas) {
  for (std::size_t i = 0; i < replicas[0].size(); ++i) {
    float total = replicas[0][i];
    for (std::size_t r = 1; r < replicas.size(); ++r) total += replicas[r][i];
    for (const std::span<float> one : replicas) one[i] = total;
  }
}

TEST(Training, AlgorithmsThatSumInOrderHaveTheSameBits) {
  for (const std::size_t replicas : {2U, 4U}) {
    const std::string expected = hash_of_ranks(static_cast<int>(replicas));
    Mirrored users(replicas, of_the_users);
    EXPECT_EQ(fit_under(users, 1).hash, expected) << replicas;
    Mirrored to_one(replicas, cross_device_ops("ReductionToOneDevice"));
    EXPECT_EQ(fit_under(to_one, 1).hash, expected) << replicas;
    Mirrored board(replicas, cross_device_ops("NcclAllReduce"));
    EXPECT_EQ(fit_under(board, 1).hash, expected) << replicas;
    Mirrored in_groups(replicas, cross_device_ops("HierarchicalCopyAllReduce"));
    const Outcome grouped = fit_under(in_groups, 1);
    EXPECT_EQ(grouped.hash == expected, replicas == 2) << replicas;
    EXPECT_NEAR(grouped.test.loss(), run_toy({.epochs = 1}).test.loss(), 0.01);
  }
}

TEST(Training, AnAlgorithmThatThrowsEndsTheTraining) {
  Mirrored strategy(2, [](auto) { throw std::runtime_error("cannot add"); });
  EXPECT_THROW(fit_under(strategy), std::runtime_error);
}

TEST(Training, CentralStorageHasVariablesOnce) {
  CentralStorage strategy(2);
  const Scope scope(strategy);
  const Model model(toy_network);
  EXPECT_EQ(model.copy(0).parameters()[0]->value().data(),
            model.copy(1).parameters()[0]->value().data());
  EXPECT_NE(model.copy(0).parameters()[0]->gradient().data(),
            model.copy(1).parameters()[0]->gradient().data());
}

// ---- models ----

class TwoBranches {
 public:
  Tensor operator()(const Tensor& input) {
    return last_(concat(std::array{relu(sharp_(input)), sigmoid(soft_(input))}, 1));
  }
  std::vector<Parameter*> parameters() { return parameters_of({&sharp_, &soft_, &last_}); }

 private:
  Linear sharp_{"sharp", kFeatures, 8, Initialization::kHe, 1};
  Linear soft_{"soft", kFeatures, 8, Initialization::kGlorot, 1};
  Linear last_{"last", 16, kClasses, Initialization::kGlorot, 1};
};

TEST(Models, OfTheUsersClassAreTrainedAlike) {
  std::vector<std::string> hashes;
  for (const bool central : {false, true}) {
    std::unique_ptr<Strategy> strategy;
    if (central) {
      strategy = std::make_unique<CentralStorage>(2);
    } else {
      strategy = std::make_unique<Mirrored>(2);
    }
    const Scope scope(*strategy);
    Model model([] { return TwoBranches(); });
    model.compile(kToyOptions, classification_loss);
    EXPECT_GT(model.fit(toy_batches(), {.epochs = 4}).training.accuracy(), 0.9);
    hashes.push_back(model.parameter_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// A batch of 10 is 5 and 5.
TEST(Models, ABatchIsCutBetweenTheReplicas) {
  Mirrored strategy(2);
  const DistributedDataset data = strategy.distribute(toy_batches(100));
  DistributedEpoch steps = data.epoch(0);
  int taken = 0;
  for (; taken < 4 && steps.next(); ++taken) {  // a given number of steps
    for (const StepBatch& one : steps.batch().values()) {
      EXPECT_EQ(one.global_size, 10);
      EXPECT_EQ(one.parts.front().size(), 5);
    }
  }
  EXPECT_EQ(taken, 4);
  for ([[maybe_unused]] const DistributedBatch& batch : steps) ++taken;  // the rest
  EXPECT_EQ(taken, 10);
}

TEST(Models, FitCalledTwiceIsOneCallOfTwiceTheEpochs) {
  const auto weights_after = [](int calls, std::size_t epochs) {
    Mirrored strategy(2);
    const Scope scope(strategy);
    Model model(toy_network);
    model.compile(kToyOptions, classification_loss);
    for (int i = 0; i < calls; ++i) model.fit(toy_batches(), {.epochs = epochs});
    return model.parameter_hash();
  };
  EXPECT_EQ(weights_after(2, 1), weights_after(1, 2));
}

class WaysToFeed : public testing::TestWithParam<std::size_t> {};

TEST_P(WaysToFeed, GiveTheSameBits) {
  const std::size_t replicas = GetParam();
  std::vector<std::string> hashes;
  for (int way = 0; way < 3; ++way) {
    Mirrored strategy(replicas);
    const Scope scope(strategy);
    Model model(toy_network);
    Optimizer sgd(model, kToyOptions);
    const DistributedDataset data =
        way == 0   ? strategy.distribute(toy_batches())
        : way == 1 ? strategy.distribute_from_chief(toy_batches())
                   : strategy.distribute_from([&](const InputContext& input) {
                       EXPECT_EQ(input.num_input_pipelines, 1);
                       return toy_batches(205, replicas * input.get_per_replica_batch_size(10));
                     });
    toy_loop(strategy, model, sgd, data.epoch(0));
    hashes.push_back(model.parameter_hash());
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

INSTANTIATE_TEST_SUITE_P(Replicas, WaysToFeed, testing::Values(1, 2));

// Its sizes are found, or said; its layers have the names and first weights of toy_network().
TEST(Models, ASequenceIsTheModelThatAMakerMakes) {
  Mirrored strategy(2);
  const Scope scope(strategy);
  Model made(toy_network);
  Sequential said({input({kFeatures}), dense(12, relu), dense(kClasses)}, 5);
  Sequential found({dense(12, relu), dense(kClasses)}, 5);
  EXPECT_THAT(error_of([&] { (void)found.parameters(); }), HasSubstr("begin with input(...)"));
  EXPECT_EQ(said.parameter_hash(), made.parameter_hash());
  for (Model* const one : {&made, static_cast<Model*>(&said), static_cast<Model*>(&found)}) {
    one->compile(kToyOptions, classification_loss, {"accuracy"});
    (void)one->fit(toy_batches(), {.epochs = 1});
    EXPECT_EQ(one->parameter_hash(), made.parameter_hash());
  }
  EXPECT_THAT(error_of([] { Sequential model({input({1, 2, 2}), dense(3)}); }),
              HasSubstr("fc1 has samples of 1 x 2 x 2 in front: put flatten between"));
}

// Two batches of a loop are the two micro-batches of a step, whose loss says what it is a part of.
TEST(Training, ALoopAccumulates) {
  const auto weights_after = [](std::size_t batch, std::uint64_t accumulate) {
    Mirrored strategy(2);
    const Scope scope(strategy);
    Model model(toy_network);
    OptimizerOptions options = kToyOptions;
    options.accumulate = accumulate;
    Optimizer optimizer(model, options);
    for (const DistributedBatch& one : strategy.distribute(toy_batches(200, batch)).epoch(0)) {
      strategy.run(
          [&](Replica& here, const Part& part) {
            here.minimize(softmax_cross_entropy(model(part.inputs), part.labels, 20));
          },
          one);
    }
    EXPECT_EQ(optimizer.global_step(), 10U);
    const std::span<const float> values = model.parameters()[0]->value();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_THAT(weights_after(10, 2),
              testing::Pointwise(testing::FloatNear(1e-5F), weights_after(20, 1)));
}

TEST(Models, ABatchThatReplicasCannotShareIsRefused) {
  const InputContext three{.num_replicas_in_sync = 3};
  EXPECT_THAT(error_of([&] { (void)three.get_per_replica_batch_size(10); }),
              HasSubstr("global batch of 10"));
}

// Normalisation over the samples of all replicas sees what one replica would.
TEST(Models, NormaliseOverAllReplicas) {
  const auto loss_with = [](std::size_t replicas) {
    Mirrored strategy(replicas);
    const Scope scope(strategy);
    Model model([] {
      auto network = toy_network();
      network->add<BatchNorm>("norm", kClasses, sum_over_replicas());
      return network;
    });
    model.compile(kPlainOptions, classification_loss);
    return model.fit(toy_batches(), {.epochs = 1}).training.loss();
  };
  EXPECT_NEAR(loss_with(2), loss_with(1), 1e-4);
}

TEST(Training, ALoopOfOnesOwnSaysWhyItsStepFailed) {
  OneDevice strategy("/cpu:0");
  const Scope scope(strategy);
  Model model(toy_network);
  model.compile(kPlainOptions, [](const Tensor&, const Batch&) -> Loss {
    throw TrainerError("the file of weights is gone");
  });
  EXPECT_THAT(error_of([&] {
                strategy.run([&](Replica& here) {
                  Epoch batches = here.shard(toy_batches()).epoch(0);
                  model.learner().step(*batches.next(), 0);
                });
              }),
              HasSubstr("on this rank: the file of weights is gone"));
}

struct StopAfterOneStep : Callback {
  void on_step(TrainingState& state) override { state.stop_now = true; }
};

TEST(Models, AFitCountsNothingOfOneThatWasStopped) {
  Mirrored strategy(2);
  const Scope scope(strategy);
  Model model(toy_network);
  model.compile(kToyOptions, classification_loss);
  model.fit(toy_batches(), {.epochs = 1}, [](Replica&) {
    std::vector<std::unique_ptr<Callback>> mine;
    mine.push_back(std::make_unique<StopAfterOneStep>());
    return mine;
  });
  EXPECT_EQ(model.fit(toy_batches(), {.epochs = 1}).training.samples, 205U);
}

}  // namespace
}  // namespace ronde::trainer
