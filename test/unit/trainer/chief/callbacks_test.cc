// SPDX-License-Identifier: Apache-2.0
// Early stopping and the learning rate by epochs, without a training loop.
#include "bindings/trainer/chief/callbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "bindings/trainer/optim/optimizer.h"
#include "test/unit/trainer/optim/toy_job.h"

namespace ronde::trainer {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

// An epoch that ends with this loss; whether training stops there.
bool stops_after(EarlyStopping& early, std::size_t epoch, double loss) {
  TrainingState state;
  state.epoch = epoch;
  state.epochs = 100;
  state.epoch_is_over = true;
  state.training = {.loss_sum = loss, .correct = 0.0, .samples = 1.0};
  early.on_epoch(state);
  return state.stop;
}

TEST(EarlyStoppingCallback, ALossThatIsNoNumberIsNoGain) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  std::map<std::string, double> numbers;
  std::vector<std::string> lines;
  EarlyStopping early(numbers, 3, 0.0, [&](const std::string& line) { lines.push_back(line); });
  EXPECT_FALSE(stops_after(early, 0, kNan)) << "nor is it the best that nothing can beat";
  EXPECT_FALSE(stops_after(early, 1, 2.0));
  EXPECT_FALSE(stops_after(early, 2, kNan));
  EXPECT_FALSE(stops_after(early, 3, -std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(stops_after(early, 4, 1.0)) << "a gain over 2.0, of which the count begins anew";
  EXPECT_FALSE(stops_after(early, 5, kNan));
  EXPECT_FALSE(stops_after(early, 6, kNan));
  EXPECT_TRUE(stops_after(early, 7, kNan));
  EXPECT_THAT(lines, ElementsAre(HasSubstr("no gain for 3 epochs, ended after epoch 8")));
}

TEST(EarlyStoppingCallback, AGainMustBeAsLargeAsAskedFor) {
  std::map<std::string, double> numbers;
  EarlyStopping early(numbers, 2, 0.5, {});
  EXPECT_FALSE(stops_after(early, 0, 3.0));
  EXPECT_FALSE(stops_after(early, 1, 2.75));
  EXPECT_FALSE(stops_after(early, 2, 2.25)) << "0.75 better than the best, if by two steps";
  EXPECT_FALSE(stops_after(early, 3, 2.0));
  EXPECT_TRUE(stops_after(early, 4, 1.75));
}

TEST(ScaleLearningRateCallback, MultipliesTheScheduleByTheFactorOfTheEpoch) {
  run_ranks(2, [](const LocalJob& job, int rank) {
    Toy toy;
    const auto optimizer = make_optimizer({}, toy.parameters());
    Tape tape;
    Engine engine(job, rank);
    DistributedOptimizer distributed(
        engine, toy.parameters(), {}, *optimizer,
        {.schedule = {.kind = ScheduleOptions::Kind::kConstant, .learning_rate = 0.5}});
    ScaleLearningRate scale(
        distributed, [](std::size_t epoch) { return 1.0 / static_cast<double>(1 + 3 * epoch); });
    std::vector<double> rates;
    const auto step = [&] {
      const auto mine = Samples{0, 4}.part(static_cast<std::size_t>(rank), 2);
      distributed.backward(tape, toy.loss(tape, mine, 4, true));
      rates.push_back(distributed.step().learning_rate);
    };
    TrainingState state;
    scale.on_start(state);
    step();
    scale.on_epoch(state);  // the end of epoch 0
    step();
    step();
    state.epoch = 1;
    scale.on_epoch(state);
    step();
    TrainingState resumed;
    resumed.epoch = 1;
    scale.on_start(resumed);
    step();
    EXPECT_THAT(rates, ElementsAre(0.5, 0.125, 0.125, DoubleEq(0.5 / 7), 0.125));
  });
}

}  // namespace
}  // namespace ronde::trainer
