// SPDX-License-Identifier: Apache-2.0
// What a strategy does with steps and with what they return, and what it refuses.
#include "bindings/trainer/fit/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/tensor/operations.h"
#include "test/unit/trainer/error_of.h"
#include "test/unit/trainer/fit/strategy/strategy_kit.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

PerReplica<double> ranks(Strategy& strategy) {
  return strategy.run([](Replica& here) { return static_cast<double>(here.rank()); });
}

TEST(Strategy, RunsAStepOnEachReplicaOnItsOwnThread) {
  Mirrored strategy(3);
  EXPECT_EQ(strategy.name(), "Mirrored(3)");
  EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
  EXPECT_THAT(Strategy::local_results(ranks(strategy)), ElementsAre(0, 1, 2));
  const auto threads = [&] {
    return strategy.run([](Replica&) { return std::this_thread::get_id(); }).values();
  };
  const std::vector<std::thread::id> first = threads();
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_NE(first[1], first[0]);
  EXPECT_NE(first[2], first[1]);
  EXPECT_EQ(threads(), first);
  const auto doubled =
      strategy.run([](Replica&, double value, double more) { return value + more; },
                   ranks(strategy), ranks(strategy));
  EXPECT_THAT(doubled.values(), ElementsAre(0, 2, 4));
}

TEST(Strategy, TheCurrentOneIsThatOfTheThreadsInnermostScope) {
  EXPECT_EQ(current_strategy().name(), "Default");
  EXPECT_EQ(current_strategy().num_replicas_in_sync(), 1);
  EXPECT_FALSE(in_step());
  EXPECT_THAT(error_of([] { (void)current_replica(); }), HasSubstr("no replica's thread"));
  Mirrored outer(2);
  const Scope scope(outer);
  {
    OneDevice inner("cpu");
    const Scope innermost(inner);
    EXPECT_EQ(current_strategy().name(), "OneDevice(cpu)");
    std::async(std::launch::async, [] { EXPECT_EQ(current_strategy().name(), "Default"); }).get();
    const auto seen = outer.run([](Replica& here) {
      EXPECT_EQ(&current_replica(), &here);
      return &current_strategy();
    });
    EXPECT_THAT(seen.values(), ElementsAre(&outer, &outer));
  }
  EXPECT_EQ(&current_strategy(), &outer);
}

TEST(Strategy, ReducesNumbersAndArrays) {
  Mirrored strategy(3);
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, ranks(strategy)), 3.0);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, ranks(strategy)), 1.0);
  // {2, 3} of 10 r + 0, 1, 2 ...
  const auto arrays = strategy.run([](Replica& here) {
    Array array{{2, 3}, std::vector<float>(6)};
    std::iota(array.values.begin(), array.values.end(), 10.0F * static_cast<float>(here.rank()));
    return array;
  });
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, arrays), (Array{{2, 3}, {30, 33, 36, 39, 42, 45}}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, arrays), (Array{{2, 3}, {10, 11, 12, 13, 14, 15}}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, arrays, 0), (Array{{3}, {69, 75, 81}}));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, arrays, 1), (Array{{2}, {11, 14}}));
}

// As the last batch of an epoch has it: the mean counts elements, not replicas.
TEST(Strategy, TheMeanAlongAnAxisIsOverAllElements) {
  Mirrored strategy(2);
  const auto arrays = strategy.run(
      [](Replica& here) { return here.rank() == 0 ? Array{{3}, {1, 2, 3}} : Array{{1}, {10}}; });
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, arrays, 0), (Array{{}, {4}}));
  EXPECT_EQ(strategy.gather(arrays), (Array{{4}, {1, 2, 3, 10}}));
}

TEST(Strategy, GathersAlongAnyAxis) {
  Mirrored strategy(2);
  const auto arrays = strategy.run([](Replica& here) {
    return here.rank() == 0 ? Array{{2, 1}, {1, 2}} : Array{{2, 2}, {3, 4, 5, 6}};
  });
  EXPECT_EQ(strategy.gather(arrays, 1), (Array{{2, 3}, {1, 3, 4, 2, 5, 6}}));
}

TEST(Strategy, ReplicasThatReturnDifferentShapesAreNamed) {
  Mirrored strategy(2);
  const auto arrays = strategy.run([](Replica& here) {
    return here.rank() == 0 ? Array{{2, 1}, {1, 2}} : Array{{1, 2}, {3, 4}};
  });
  EXPECT_THAT(error_of([&] { (void)strategy.reduce(ReduceOp::kSum, arrays); }),
              AllOf(HasSubstr("the replicas return 2 x 1 on rank 0 and 1 x 2 on rank 1"),
                    HasSubstr("return the same shape on each")));
  EXPECT_THAT(error_of([&] { (void)strategy.gather(arrays, 0); }),
              HasSubstr("cannot be put together along side 0"));
  EXPECT_THAT(error_of([&] { (void)strategy.reduce(ReduceOp::kSum, arrays, 2); }),
              HasSubstr("along side 2"));
}

// Replica 1 throws while 0 waits for it: the first text comes out, and nothing hangs.
TEST(Strategy, AnExceptionOnOneReplicaEndsAll) {
  for (const int thrower : {0, 1, 2}) {
    Mirrored strategy(3);
    std::string text;
    try {
      strategy.run([thrower](Replica& here) {
        if (here.rank() == thrower)
          throw std::runtime_error("no more, says " + std::to_string(thrower));
        here.barrier("all");
      });
    } catch (const std::runtime_error& error) {
      text = error.what();
    }
    EXPECT_EQ(text, "no more, says " + std::to_string(thrower));
    EXPECT_THAT(error_of([&] { ranks(strategy); }),
                AllOf(HasSubstr("run(): this Mirrored(3) has ended with an error (no more"),
                      HasSubstr("make a new one")));
  }
}

// They have all thrown at the same point, so they can go on together.
TEST(Strategy, AnAgreedErrorLeavesItUsable) {
  Mirrored strategy(2);
  EXPECT_EQ(error_of([&] { strategy.run([](Replica&) { throw AgreedError("not this one", 0); }); }),
            "not this one");
  strategy.run([](Replica& here) { here.barrier("all"); });
  EXPECT_THAT(ranks(strategy).values(), ElementsAre(0, 1));
}

// Another error beside it ends the strategy, and is what is thrown and told later.
TEST(Strategy, AnotherErrorBesideAnAgreedOneEndsIt) {
  for (const int agreed : {0, 1}) {
    Mirrored strategy(2);
    std::promise<void> first;
    std::future<void> first_was = first.get_future();
    EXPECT_EQ(error_of([&] {
                strategy.run([&](Replica& here) {
                  if (here.rank() == agreed) {
                    first.set_value();
                    throw AgreedError("not this one", 0);
                  }
                  first_was.wait();
                  throw TrainerError("no room on the disk");
                });
              }),
              "no room on the disk");
    EXPECT_THAT(error_of([&] { ranks(strategy); }),
                HasSubstr("this Mirrored(2) has ended with an error (no room on the disk)"));
  }
}

TEST(Strategy, BelongsToTheThreadThatMadeIt) {
  Mirrored strategy(2);
  const std::string text =
      std::async(std::launch::async, [&] { return error_of([&] { ranks(strategy); }); }).get();
  EXPECT_THAT(text, AllOf(HasSubstr("run(): another thread has made this Mirrored(2)"),
                          HasSubstr("make one in each")));
  EXPECT_THAT(
      std::async(std::launch::async, [&] { return error_of([&] { const Scope scope(strategy); }); })
          .get(),
      HasSubstr("Scope: another thread"));
  EXPECT_THAT(ranks(strategy).values(), ElementsAre(0, 1));
}

TEST(Strategy, AStepCannotRunASecondOne) {
  Mirrored strategy(2);
  EXPECT_THAT(error_of([&] { strategy.run([&](Replica&) { ranks(strategy); }); }),
              HasSubstr("run() is called in a step of Mirrored(2)"));
}

// Which cores this thread may run on.
std::vector<int> cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

TEST(Strategies, NamedDevicesPinTheirReplicas) {
  const std::vector<int> all = cores_of_this_thread();
  const std::string last = "/cpu:" + std::to_string(all.size() - 1);
  {
    OneDevice strategy(last);
    const auto cores = strategy.run([](Replica&) { return cores_of_this_thread(); });
    EXPECT_THAT(cores.values(), ElementsAre(ElementsAre(all.back())));
    EXPECT_EQ(cores_of_this_thread(), all);
  }
  Mirrored strategy(std::vector<std::string>{"cpu", last, "/cpu:0"});
  const auto cores = strategy.run([](Replica&) { return cores_of_this_thread(); });
  EXPECT_THAT(cores.values(), ElementsAre(all, ElementsAre(all.back()), ElementsAre(all.front())));
}

TEST(Strategies, RefuseWhatCannotBe) {
  EXPECT_THAT(error_of([] { Mirrored none(std::size_t{0}); }), HasSubstr("use 1 to 64"));
  EXPECT_THAT(error_of([] { Mirrored many(65); }), HasSubstr("use 1 to 64"));
  EXPECT_THAT(error_of([] { OneDevice gpu("/gpu:0"); }),
              HasSubstr("no device \"/gpu:0\" for a strategy"));
  EXPECT_THAT(error_of([] { Mirrored mixed(std::vector<std::string>{"/cpu:0", "/gpu:1"}); }),
              HasSubstr("/gpu:1"));
  EXPECT_EQ(Mirrored(std::vector<std::string>{"/cpu:0", "/cpu:1"}).num_replicas_in_sync(), 2);
  EXPECT_THAT(error_of([] { Mirrored none(std::vector<std::string>{"/cpu:0", "/cpu:9999"}); }),
              HasSubstr("there is no device \"/cpu:9999\""));
  EXPECT_THAT(
      error_of([] {
        MultiWorkerMirrored nccl({.communication = MultiWorkerOptions::Communication::kNccl});
      }),
      HasSubstr("nccl needs gradients on GPUs"));
  EXPECT_THAT(error_of([] { (void)cross_device_ops("AllToAll"); }),
              AllOf(HasSubstr("\"AllToAll\""), HasSubstr("ReductionToOneDevice")));
}

TEST(Strategies, MultiWorkerMirroredSaysWhatItHasChosen) {
  std::vector<std::string> lines;
  const MultiWorkerOptions options{.timeout = std::chrono::seconds(20),
                                   .say = [&](const std::string& line) { lines.push_back(line); }};
  const MultiWorkerMirrored alone(options);
  EXPECT_EQ(alone.num_replicas_in_sync(), 1);
  EXPECT_THAT(lines,
              ElementsAre("MultiWorkerMirrored: 1 workers, 1 replicas, communication none, alone"));
  EXPECT_EQ(alone.description(), lines[0]);
  EXPECT_EQ(Default().description(), "Default");
  EXPECT_EQ(std::getenv("RONDE_START_TIMEOUT_SECONDS"), nullptr);
}

TEST(CustomLoops, AverageOverTheGlobalBatchAndScaleRegularisation) {
  Mirrored strategy(2);
  const auto values = strategy.run([](Replica& here) {
    Tape& tape = here.tape();
    tape.begin();
    const Tensor per_example = tape.constant({2}, std::vector<float>{2.0F, 4.0F});
    Loss loss = compute_average_loss(per_example, 4);
    EXPECT_EQ(loss.sum, 6.0);
    EXPECT_EQ(loss.samples, 2);
    EXPECT_EQ(loss.global_batch, 4);
    loss.value = loss.value + scale_regularisation(tape.constant({1}, std::vector<float>{8.0F}));
    return static_cast<double>(loss.value.item());
  });
  // Over both replicas: 12 / 4, and the regularisation once.
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, values), 11.0);
  Default().run([](Replica& here) {  // what is not said is what the step says, or a sum
    for (const std::size_t global : {0U, 2U}) {
      here.tape().begin({.global_batch = global});
      const Tensor one = here.tape().constant({1}, std::vector<float>{6.0F});
      EXPECT_EQ(compute_average_loss(one).value.item(), global == 0 ? 6.0F : 3.0F);
      EXPECT_EQ(compute_average_loss(one).global_batch, global);
    }
  });
}

}  // namespace
}  // namespace ronde::trainer
