// SPDX-License-Identifier: Apache-2.0
// Early stopping and the learning rate by epochs, without a training loop; logs, within one.
#include "bindings/trainer/keep/callbacks.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/optim/update_rule.h"
#include "test/unit/trainer/full_disk.h"
#include "test/unit/trainer/keep/no_more_threads.h"
#include "test/unit/trainer/keep/supervised_training.h"
#include "test/unit/trainer/optim/toy_job.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::DoubleEq;
using testing::Each;
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
    JobRank strategy(job, rank);
    Model model(toy);
    Optimizer optimizer(model, {.schedule = {.learning_rate = 0.5}});
    Tape& tape = strategy.here().tape();
    ScaleLearningRate scale(
        optimizer, [](std::size_t epoch) { return 1.0 / static_cast<double>(1 + 3 * epoch); });
    std::vector<double> rates;
    const auto step = [&] {
      const auto mine = Samples{0, 4}.part(static_cast<std::size_t>(rank), 2);
      optimizer.backward(tape, toy.loss(tape, mine, 4, true));
      rates.push_back(optimizer.step().learning_rate);
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

// The steps of a log, each line of which is whole.
std::vector<std::uint64_t> steps_of_log(const std::string& file) {
  std::vector<std::uint64_t> steps;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << line;
    if (json.is_object()) steps.push_back(json.at("step"));
  }
  return steps;
}

TEST(LogMetricsCallback, AfterAMomentOfAFullDiskLogsComeAgain) {
  const TemporaryFolder folder;
  SupervisedTraining one{.epochs = 2};
  one.logs = {.directory = folder.path() + "/logs", .every = 5};
  std::optional<FullDisk> full;
  one.before_step_done = [&](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 7) full.emplace(10);
    if (rank == 0 && supervisor.global_step() == 23) full.reset();
  };
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(steps_of_log(folder.path() + "/logs/metrics.jsonl"),
              ElementsAre(5U, 25U, 30U, 35U, 40U, 42U));
  EXPECT_THAT(outcome.lines, ElementsAre(HasSubstr("logs cannot be written: is the disk of "),
                                         "logs are written again from step 25 on"));
}

TEST(LogMetricsCallback, TrainingGoesOnWhereALogHasNoThread) {
  const TemporaryFolder folder;
  SupervisedTraining one{.epochs = 1};
  one.logs = {.directory = folder.path() + "/logs", .every = 5};
  std::optional<NoMoreThreads> none;
  one.before_step_done = [&](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 7) none.emplace();
    if (rank == 0 && supervisor.global_step() == 13) none.reset();
  };
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(steps_of_log(folder.path() + "/logs/metrics.jsonl"), ElementsAre(5U, 15U, 20U, 21U));
  EXPECT_THAT(outcome.lines, ElementsAre(HasSubstr("logs cannot be written: is the disk of "),
                                         "logs are written again from step 15 on"));
}

// A pipe that nobody has open for reading does not answer: a disk that hangs.
TEST(LogMetricsCallback, TrainingGoesOnBesideADiskThatHangs) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/logs/metrics.jsonl";
  constexpr std::size_t kEpochs = 10;
  // So that the log comes back before the end.
  constexpr auto kLater = std::chrono::milliseconds(10);
  SupervisedTraining one{.epochs = kEpochs};
  one.logs = {
      .directory = folder.path() + "/logs", .every = 5, .patience = std::chrono::seconds(2)};
  pollfd reader{-1, POLLIN, 0};
  one.before_step_done = [&](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 7) {
      std::filesystem::remove(file);
      ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    }
    if (rank == 0 && supervisor.global_step() > 23) std::this_thread::sleep_for(kLater);
    if (rank != 0 || supervisor.global_step() != 23) return;
    reader.fd = ::open(file.c_str(), O_RDONLY | O_NONBLOCK);
    EXPECT_EQ(::poll(&reader, 1, 20'000), 1) << "the line that waited is written";
    // Its writer closes the pipe once it is done.
    std::array<char, 4096> line{};
    while (::poll(&reader, 1, 20'000) == 1 && ::read(reader.fd, line.data(), line.size()) != 0) {
    }
  };
  const SupervisedOutcome outcome = run_supervised(one);
  ::close(reader.fd);
  EXPECT_EQ(outcome.fit.steps, kEpochs * kStepsOfEpoch);
  EXPECT_THAT(outcome.lines, ElementsAre(HasSubstr("logs cannot be written: is the disk of "),
                                         HasSubstr("logs are written again from step ")));
}

TEST(LogMetricsCallback, ATrainingWithoutLogsIsRefusedAtItsStartAndGoesOnAfterARestart) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "in the way";
  SupervisedTraining one{.epochs = 1, .supervisor = {.logdir = folder.path() + "/train"}};
  one.logs = {.directory = folder.path() + "/file"};
  EXPECT_THAT(run_to_failure(one).errors, Each(HasSubstr("no event file can be written there")));
  one.logs.directory.clear();
  one.before_step_done = stop_after(5);
  run_supervised(one);
  one.before_step_done = {};
  one.logs.directory = folder.path() + "/file";
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_EQ(rest.finished, "done in 16");
  EXPECT_THAT(rest.lines, testing::Contains(HasSubstr("no logs: ")));
}

}  // namespace
}  // namespace ronde::trainer
