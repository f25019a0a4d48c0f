// SPDX-License-Identifier: Apache-2.0
// What a model under a strategy refuses, and what goes on afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/fit/strategy/strategy_kit.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Refusals, AModelOrOptimiserOfAnotherStrategy) {
  Mirrored strategy(2);
  Model outside(toy_network);  // under Default
  EXPECT_THAT(error_of([&] {
                const Scope scope(strategy);
                Optimizer sgd(outside, kPlainOptions);
              }),
              AllOf(HasSubstr("the optimiser is made under Mirrored(2)"),
                    HasSubstr("its model was under Default")));
  EXPECT_THAT(
      error_of([&] {
        strategy.run([&](Replica& here) {
          here.tape().begin();
          (void)outside(here.tape().constant({1, kFeatures}, std::vector<float>(kFeatures)));
        });
      }),
      HasSubstr("a model of Default is used in a step of Mirrored(2)"));
  Mirrored again(2);
  Optimizer sgd(outside, kPlainOptions);
  EXPECT_THAT(error_of([&] { again.run([&](Replica& here) { (void)sgd.minimize(here, {}); }); }),
              HasSubstr("an optimiser of Default is used in a step of Mirrored(2)"));
  Mirrored third(2);
  EXPECT_THAT(error_of([&] {
                const Scope scope(third);
                outside.compile(kPlainOptions, classification_loss);
              }),
              HasSubstr("compile() is called under Mirrored(2), and the model is of Default"));
  Model other(toy_network);
  EXPECT_THAT(error_of([&] { other.fit(toy_batches()); }), HasSubstr("call compile() before"));
}

TEST(Refusals, AMakerThatMakesAnotherModelEachTime) {
  Mirrored strategy(2);
  const Scope scope(strategy);
  std::size_t hidden = 3;
  EXPECT_THAT(
      error_of([&] { Model model([&] { return make_mlp(kFeatures, ++hidden, kClasses, 1); }); }),
      AllOf(HasSubstr("fc1/weight 16 x 4"), HasSubstr("fc1/weight 16 x 5"),
            HasSubstr("make the same model each time")));
}

TEST(Refusals, OneModelForSeveralReplicas) {
  Mirrored strategy(2);
  const Scope scope(strategy);
  const auto own = toy_network();
  EXPECT_THAT(error_of([&] { const Model model(*own); }),
              AllOf(HasSubstr("Mirrored(2) has 2 replicas in this process, and one model is given"),
                    HasSubstr("give a function that makes one for each")));
  Model model(toy_network);
  Optimizer sgd(model, kPlainOptions);
  strategy.run([&](Replica& here) {
    EXPECT_EQ(&sgd.of(here) == &sgd, here.local() == 0);
    EXPECT_EQ(&sgd.of(here).of(here), &sgd.of(here));
  });
  EXPECT_THAT(error_of([&] { strategy.run([](Replica& here) { (void)here.minimize({}); }); }),
              HasSubstr("0 optimisers have parameters that this pass has used"));
}

TEST(Refusals, FewerSamplesThanReplicas) {
  Mirrored strategy(3);
  const Scope scope(strategy);
  Model model(toy_network);
  model.compile(kPlainOptions, classification_loss);
  const std::string expected = "the data set has 2 samples, and Mirrored(3) has 3 replicas";
  EXPECT_THAT(error_of([&] { model.fit(toy_batches(2)); }), HasSubstr(expected));
  EXPECT_THAT(error_of([&] { (void)strategy.distribute(toy_batches(2)); }), HasSubstr(expected));
  EXPECT_THAT(error_of([&] { (void)strategy.distribute_from_chief(toy_batches(2)); }),
              HasSubstr(expected));
  EXPECT_THAT(error_of([&] { model.fit(toy_batches(20, 2)); }),
              HasSubstr("global batch of 2 is too small for 3 ranks"));
  EXPECT_EQ(model.fit(toy_batches(30)).steps, 3);  // and it goes on
}

TEST(Refusals, AnErrorOfOneReplicasModelEndsTheFit) {
  Mirrored strategy(2);
  const Scope scope(strategy);
  Model model(toy_network);
  std::size_t calls = 0;  // of replica 1
  model.compile(kPlainOptions, [&](const Tensor& outputs, const Batch& batch) {
    if (current_replica().rank() == 1 && ++calls == 5) throw TrainerError("the fifth is too much");
    return softmax_cross_entropy(outputs, batch.labels);
  });
  EXPECT_THAT(error_of([&] { model.fit(toy_batches()); }),
              HasSubstr("rank 1: the fifth is too much"));
}

}  // namespace
}  // namespace ronde::trainer
