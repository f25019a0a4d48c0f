// SPDX-License-Identifier: Apache-2.0
// From where a training goes on, and what it must have in common with the one before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "test/unit/trainer/keep/hooked_disk.h"
#include "test/unit/trainer/keep/supervised_training.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Resume : public testing::Test {
 protected:
  // Saves at the ends of epochs, which are the best so far.
  SupervisedTraining training() const {
    return {
        .ranks = 2, .epochs = 3, .supervisor = {.logdir = folder_.path(), .save_model_secs = 0.0}};
  }
  // The training once more, with --restore.
  SupervisedTraining restoring(const std::string& how) const {
    SupervisedTraining one = training();
    one.supervisor.restore = how;
    one.supervisor.goal = how;
    return one;
  }

  const TemporaryFolder folder_;
};

TEST_F(Resume, FromACertainStepComesToTheSameBits) {
  const SupervisedOutcome whole = run_supervised(training());
  ASSERT_THAT(steps_in(folder_.path()), ElementsAre(21U, 42U, 63U));
  const SupervisedOutcome again = run_supervised(restoring("step-21"));
  EXPECT_THAT(again.began_at, Each(21U));
  EXPECT_EQ(again.hashes, whole.hashes);
  EXPECT_EQ(again.tensors, whole.tensors);
  EXPECT_THAT(again.lines, Contains(HasSubstr("resumed at step 21 ")));
}

TEST_F(Resume, FromACheckpointElsewhere) {
  const SupervisedOutcome whole = run_supervised(training());
  const TemporaryFolder other;
  SupervisedTraining one = restoring(folder_.path() + "/step-42");
  one.supervisor.logdir = other.path();
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_THAT(rest.began_at, Each(42U));
  EXPECT_EQ(rest.tensors, whole.tensors);
  EXPECT_THAT(steps_in(other.path()), ElementsAre(63U));
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(21U, 42U, 63U)) << "which stays as it is";
}

TEST_F(Resume, FromNothingReplacesWhatIsThereOnceItHasSaved) {
  run_supervised(training());
  SupervisedTraining anew = restoring("never");
  anew.seed = 77;
  anew.before_step_done = [&](Supervisor& supervisor, int rank) {
    if (supervisor.global_step() + 1 == 5 && rank == 0) {
      EXPECT_THAT(steps_in(folder_.path()), ElementsAre(21U, 42U, 63U));
      supervisor.stop();
    }
  };
  const SupervisedOutcome outcome = run_supervised(anew);
  EXPECT_THAT(outcome.began_at, Each(0U));
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(5U));
}

TEST_F(Resume, WhatIsNotThereIsRefusedByName) {
  const auto failure_of = [&](const std::string& how) {
    const SupervisedOutcome outcome = run_to_failure(restoring(how));
    EXPECT_THAT(outcome.exit_codes, Each(kExitConfiguration)) << how;
    EXPECT_EQ(outcome.errors[0], outcome.errors[1]);
    return outcome.errors[0];
  };
  EXPECT_THAT(failure_of("must"), HasSubstr("there is no checkpoint in " + folder_.path()));
  run_supervised(training());
  EXPECT_THAT(failure_of("step-20"), AllOf(HasSubstr("--restore step-20: there is no such"),
                                           HasSubstr("there are step-21 step-42 step-63")));
  EXPECT_THAT(failure_of("newest"), HasSubstr("--restore newest: there is no such"));
  EXPECT_NE(run_to_failure(restoring(folder_.path() + "/none")).errors[0], "");
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(21U, 42U, 63U)) << "nothing was touched";
  EXPECT_THAT(run_supervised(restoring("must")).began_at, Each(63U));
}

TEST_F(Resume, AnotherScheduleIsRefusedOrSaidWithBothValues) {
  SupervisedTraining one = training();
  one.before_step_done = stop_after(30);
  run_supervised(one);
  one.before_step_done = {};
  one.schedule_steps = 2000;
  const SupervisedOutcome refused = run_to_failure(one);
  EXPECT_THAT(refused.errors,
              Each(HasSubstr("steps was learning rate 0.01, to 0 in a line over 1000 steps and is "
                             "now learning rate 0.01, to 0 in a line over 2000 steps")));
  EXPECT_THAT(refused.exit_codes, Each(kExitConfiguration));
  one.supervisor.accept_changes = true;
  const SupervisedOutcome accepted = run_supervised(one);
  EXPECT_THAT(accepted.began_at, Each(30U));
  EXPECT_THAT(accepted.lines, Contains(AllOf(HasSubstr("another training from here on"),
                                             HasSubstr("over 1000"), HasSubstr("over 2000"))));
  one.supervisor.accept_changes = false;
  one.supervisor.goal = "a third start";
  EXPECT_THAT(run_supervised(one).began_at, Each(63U)) << "the change has been accepted";
}

TEST_F(Resume, OtherFlagsAndOtherModelsAreRefusedOnEveryRank) {
  SupervisedTraining one = training();
  one.supervisor.flags = {{"--seed", "1"}, {"data", "205 samples, batches of 10"}};
  run_supervised(one);
  SupervisedTraining other = one;
  other.supervisor.flags = {{"--seed", "2"}, {"data", "206 samples, batches of 10"}};
  const SupervisedOutcome flags = run_to_failure(other);
  EXPECT_THAT(flags.errors, Each(AllOf(HasSubstr("--seed was 1 and is now 2"),
                                       HasSubstr("data was 205 samples, batches of 10 and is now "
                                                 "206 samples, batches of 10"))));
  EXPECT_THAT(flags.exit_codes, Each(kExitConfiguration));
  other = one;
  other.hidden = 13;
  const SupervisedOutcome model = run_to_failure(other);
  EXPECT_THAT(model.errors, Each(HasSubstr("fc1/weight")));
  EXPECT_THAT(model.exit_codes, Each(kExitConfiguration));
}

TEST_F(Resume, AFinishedTrainingGoesOnWithAnotherGoalAlone) {
  SupervisedTraining one = training();
  one.supervisor.goal = "3 epochs";
  const SupervisedOutcome first = run_supervised(one);
  EXPECT_EQ(first.finished, "done in 63");
  const SupervisedOutcome again = run_supervised(one);
  EXPECT_EQ(again.finished, "done in 63");
  EXPECT_THAT(again.began_at, testing::IsEmpty()) << "the body does not run";
  EXPECT_EQ(again.tensors, first.tensors);
  one.supervisor.goal = "4 epochs";
  one.epochs = 4;
  one.before_step_done = stop_after(70);
  EXPECT_TRUE(run_supervised(one).stopped);
  EXPECT_FALSE(read_training_record(disk(), folder_.path()).finished_step)
      << "its old end is none any more";
}

TEST_F(Resume, ALogdirOfTheChiefAloneCounts) {
  SupervisedTraining one = training();
  // As users of Horovod and TensorFlow write it; ranks would wait for each other for ever.
  one.options_of_rank = [](SupervisorOptions& options, int rank) {
    if (rank == 0) return;
    options.logdir.clear();
    options.goal = "another";
    options.restore = "must";
  };
  one.before_step_done = stop_after(25, 1);
  const SupervisedOutcome stopped = run_supervised(one);
  EXPECT_THAT(stopped.exit_codes, Each(75));
  one.before_step_done = {};
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_THAT(rest.began_at, Each(25U));
  EXPECT_THAT(rest.exit_codes, Each(0));
  one.options_of_rank = [](SupervisorOptions& options, int rank) {
    if (rank == 0) options.logdir.clear();
  };
  EXPECT_THAT(run_supervised(one).began_at, Each(0U)) << "and where only others have one, none";
}

// Epochs of one step each, with these metrics on the chief, and others on the other rank; from
// which step it went on.
std::uint64_t run_epochs(SupervisorOptions options, const std::vector<double>& metrics) {
  std::uint64_t began = 0;
  options.say = [](const std::string&) {};
  run_ranks(2, [&](const LocalJob& job, int rank) {
    const auto network = make_mlp(kFeatures, 3, kClasses, 1);
    JobRank strategy(job, rank);
    Model model(*network);
    Optimizer sgd(model, {});
    Supervisor supervisor(strategy.here(), sgd, options);
    supervisor.managed_session([&] {
      if (rank == 0) began = supervisor.global_step();
      for (const double metric : metrics) {
        supervisor.step_done();
        supervisor.epoch_done(rank == 0 ? metric : -metric);
      }
    });
  });
  return began;
}

TEST_F(Resume, FromTheBestByTheChiefsMetric) {
  SupervisorOptions options = training().supervisor;
  options.keep = 1;
  run_epochs(options, {5.0, 3.0, 7.0, 4.0});
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(2U, 4U));
  options.restore = "best";
  EXPECT_EQ(run_epochs(options, {9.0}), 2U);
}

TEST_F(Resume, ADirectoryThatAnotherTrainingOfThisProcessHasIsRefused) {
  HookedDisk quick(nothing_fails);
  SupervisedTraining second = training();
  second.supervisor.files = &quick;
  SupervisedOutcome refused;
  SupervisedTraining first = training();
  first.before_step_done = [&](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 30) refused = run_to_failure(second);
  };
  const SupervisedOutcome outcome = run_supervised(first);
  EXPECT_THAT(refused.errors,
              Each(AllOf(HasSubstr(folder_.path() + " is held by another training (process "),
                         HasSubstr("end that one, or name another directory"))));
  EXPECT_THAT(refused.exit_codes, Each(kExitConfiguration));
  EXPECT_EQ(outcome.finished, "done in 63");
  EXPECT_EQ(outcome.hashes, run_undisturbed(first).hashes);
  EXPECT_EQ(run_supervised(second).finished, "done in 63") << "it was given back";
}

}  // namespace
}  // namespace ronde::trainer
