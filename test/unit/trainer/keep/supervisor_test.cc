// SPDX-License-Identifier: Apache-2.0
// Trainings on the ranks of a job inside this process, under a supervisor: whatever ends them, they
// go on to the very same parameters.
#include "bindings/trainer/keep/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "test/unit/trainer/keep/supervised_training.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Supervisor, ATrainingThatIsStoppedGoesOnToTheSameBits) {
  for (const std::uint64_t stop :
       {std::uint64_t{1}, kStepsOfEpoch - 1, kStepsOfEpoch, kStepsOfEpoch + 5}) {
    const TemporaryFolder folder;
    SupervisedTraining one{.ranks = 2, .supervisor = {.logdir = folder.path()}};
    const SupervisedOutcome whole = run_undisturbed(one);
    // One rank alone asks.
    one.before_step_done = [stop](Supervisor& supervisor, int rank) {
      if (rank == 1 && supervisor.global_step() + 1 == stop) supervisor.stop();
    };
    const SupervisedOutcome first = run_supervised(one);
    EXPECT_TRUE(first.fit.cut_short);
    EXPECT_EQ(first.fit.steps, stop);
    EXPECT_THAT(first.lines,
                Contains(HasSubstr("stopped after step " + std::to_string(stop) + ", saved in")));
    one.before_step_done = {};
    const SupervisedOutcome second = run_supervised(one);
    EXPECT_THAT(second.began_at, Each(stop));
    EXPECT_THAT(second.lines, Contains(HasSubstr("resumed at step " + std::to_string(stop) + " ")));
    EXPECT_EQ(second.fit.steps, 3 * kStepsOfEpoch - stop);
    EXPECT_EQ(second.hashes, whole.hashes) << "stopped after step " << stop;
    EXPECT_EQ(second.tensors, whole.tensors);
    EXPECT_NEAR(second.fit.training.loss(), whole.fit.training.loss(), 1e-12);
    EXPECT_EQ(second.fit.training.samples, 205);
  }
}

TEST(Supervisor, TheSumsOfACutEpochAreThoseOfTheWholeOne) {
  const TemporaryFolder folder;
  SupervisedTraining one{.ranks = 3, .epochs = 1, .supervisor = {.logdir = folder.path()}};
  const SupervisedOutcome whole = run_undisturbed(one);
  one.before_step_done = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 7) supervisor.stop();
  };
  static_cast<void>(run_supervised(one));
  one.before_step_done = {};
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_NEAR(rest.fit.training.loss(), whole.fit.training.loss(), 1e-9);
  EXPECT_EQ(rest.fit.training.correct, whole.fit.training.correct);
  EXPECT_EQ(rest.fit.training.samples, 205);
}

TEST(Supervisor, FourRanksSaveAndOneTwoAndThreeGoOn) {
  const TemporaryFolder folder;
  SupervisedTraining one{.ranks = 4, .supervisor = {.logdir = folder.path()}};
  one.before_step_done = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 10) supervisor.stop();
  };
  const SupervisedOutcome four = run_supervised(one);
  for (const int ranks : {1, 2, 3}) {
    // Each gets a copy, since it saves where it stands.
    const TemporaryFolder copy;
    std::filesystem::copy(folder.path(), copy.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    SupervisedTraining other{.ranks = ranks, .supervisor = {.logdir = copy.path()}};
    other.epochs = 0;  // nothing is left to do
    const SupervisedOutcome loaded = run_supervised(other);
    EXPECT_THAT(loaded.began_at, Each(11U));
    EXPECT_THAT(loaded.tensors, Each(four.tensors[0])) << ranks << " ranks";
    other.epochs = 1;
    other.supervisor.goal = "an epoch";
    EXPECT_EQ(run_supervised(other).fit.steps, kStepsOfEpoch - 11);
  }
}

TEST(Supervisor, ASignalStopsAllRanksAfterTheSameStepAndAnotherSaves) {
  for (const int number : {SIGTERM, SIGUSR2}) {
    const TemporaryFolder folder;
    SupervisedTraining one{.ranks = 3,
                           .supervisor = {.logdir = folder.path(), .save_model_secs = 0.0}};
    one.before_step_done = [number](Supervisor& supervisor, int rank) {
      if (rank == 1 && supervisor.global_step() == 4) raise(SIGUSR1);
      if (rank == 1 && supervisor.global_step() == 9) raise(number);
    };
    const SupervisedOutcome outcome = run_supervised(one);
    EXPECT_TRUE(outcome.fit.cut_short);
    EXPECT_THAT(outcome.hashes, Each(outcome.hashes[0]));
    // The signal's rank sees it in the step after the ninth; another may have seen it before.
    EXPECT_GE(outcome.fit.steps, 9U);
    EXPECT_LE(outcome.fit.steps, 10U);
    const auto saved = steps_in(folder.path());
    ASSERT_GE(saved.size(), 2U);
    EXPECT_GE(saved[0], 4U);
    EXPECT_LE(saved[0], 6U);
    EXPECT_EQ(saved.back(), outcome.fit.steps);
  }
  struct sigaction now {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "the handlers go with the session";
}

TEST(Supervisor, AFailureSavesNothing) {
  const TemporaryFolder folder;
  SupervisedTraining one{.ranks = 2, .supervisor = {.logdir = folder.path()}};
  one.before_step_done = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 5) throw std::runtime_error("broken");
  };
  EXPECT_THAT(run_to_failure(one).errors, Each("broken"));
  EXPECT_THAT(steps_in(folder.path()), testing::IsEmpty());
}

TEST(Supervisor, SavesBySteps) {
  const TemporaryFolder folder;
  const SupervisedTraining one{
      .epochs = 1, .supervisor = {.logdir = folder.path(), .save_model_secs = 0, .save_steps = 13}};
  run_supervised(one);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(13U, kStepsOfEpoch));
}

TEST(Supervisor, SavesByTime) {
  const TemporaryFolder folder;
  SupervisedTraining one{.epochs = 1,
                         .supervisor = {.logdir = folder.path(), .save_model_secs = 1e-9}};
  std::size_t saved = 0;
  one.after_step_done = [&](Supervisor& supervisor, int rank) {
    // What is due while the one before is being written is passed over; the first one is not.
    if (rank == 0 && supervisor.global_step() == 5) supervisor.save();
    if (rank == 0 && supervisor.global_step() == 20) saved = steps_in(folder.path()).size();
  };
  run_supervised(one);
  EXPECT_GE(saved, 1U);
}

TEST(Supervisor, KeepsTheLastCheckpointsAndTheBest) {
  const TemporaryFolder folder;
  SupervisedTraining one{.epochs = 2,
                         .supervisor = {.logdir = folder.path(), .save_model_secs = 0, .keep = 2}};
  one.after_step_done = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() % 4 == 0) supervisor.save();
  };
  const SupervisedOutcome outcome = run_supervised(one);
  // The loss falls, so the best is that of the last epoch.
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(40U, 42U));
  EXPECT_EQ(outcome.finished, "done in 42");
}

TEST(EarlyStopping, EndsAllRanksAfterTheSameEpochAlsoAfterARestart) {
  // Nothing is learned at this rate, so the loss never falls.
  const TemporaryFolder folder;
  SupervisedTraining one{.ranks = 3, .epochs = 9, .supervisor = {.logdir = folder.path()}};
  one.patience = 2;
  one.learning_rate = 1e-30;
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_EQ(outcome.fit.steps, 3 * kStepsOfEpoch);
  EXPECT_THAT(outcome.epochs, Each(3U));
  EXPECT_THAT(outcome.lines, Contains(HasSubstr("no gain for 2 epochs, ended after epoch 3")));
  one.supervisor.goal = "another";
  EXPECT_EQ(run_supervised(one).fit.steps, 0U) << "it remembers that it had been stopped";
}

TEST(EarlyStopping, CountsOnFromACheckpoint) {
  const TemporaryFolder folder;
  SupervisedTraining one{.ranks = 2, .epochs = 9, .supervisor = {.logdir = folder.path()}};
  one.patience = 3;
  one.learning_rate = 1e-30;
  one.before_step_done = [](Supervisor& supervisor, int) {
    if (supervisor.global_step() == 2 * kStepsOfEpoch + 3) supervisor.stop();
  };
  static_cast<void>(run_supervised(one));
  one.before_step_done = {};
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_THAT(rest.epochs, Each(4U));
}

TEST(EarlyStopping, WarnsOfAPatienceThatCannotBeReached) {
  SupervisedTraining one{.ranks = 2, .epochs = 2};
  one.patience = 2;
  EXPECT_THAT(run_supervised(one).lines, Contains(HasSubstr("cannot end this training early")));
  one.epochs = 3;
  EXPECT_THAT(run_supervised(one).lines,
              testing::Not(Contains(HasSubstr("cannot end this training early"))));
}

}  // namespace
}  // namespace ronde::trainer
