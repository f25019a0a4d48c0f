// SPDX-License-Identifier: Apache-2.0
// How a training ends: finished, stopped and saved, or failed, and nothing that looks like another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

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
using testing::Not;

class Ending : public testing::Test {
 protected:
  // An epoch that saves at its end alone.
  SupervisedTraining training() const {
    return {
        .ranks = 2, .epochs = 1, .supervisor = {.logdir = folder_.path(), .save_model_secs = 0.0}};
  }

  const TemporaryFolder folder_;
};

TEST_F(Ending, StoppedIsNotFinished) {
  SupervisedTraining one = training();
  one.before_step_done = stop_after(5, 1);
  const SupervisedOutcome stopped = run_supervised(one);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_THAT(stopped.exit_codes, Each(75));
  EXPECT_EQ(stopped.finished, "");
  one.before_step_done = {};
  const SupervisedOutcome finished = run_supervised(one);
  EXPECT_FALSE(finished.stopped);
  EXPECT_THAT(finished.exit_codes, Each(0));
  const SupervisedOutcome again = run_supervised(one);
  EXPECT_FALSE(again.stopped);
  EXPECT_THAT(again.exit_codes, Each(0)) << "it says its result once more";
}

TEST_F(Ending, ThePlaceOfTheStopMayBeTheLastStep) {
  SupervisedTraining one = training();
  one.before_step_done = stop_after(kStepsOfEpoch);
  EXPECT_THAT(run_supervised(one).exit_codes, Each(75)) << "the epoch's end is still to do";
  one.before_step_done = {};
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_EQ(rest.fit.steps, 0U);
  EXPECT_EQ(rest.finished, "done in 0");
  EXPECT_EQ(rest.fit.training.samples, 205);
}

TEST_F(Ending, TheExitCodeOfAStopMayBeChosen) {
  SupervisedTraining one = training();
  one.supervisor.stopped_exit_code = 0;
  one.before_step_done = stop_after(5);
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_THAT(outcome.exit_codes, Each(0));
}

TEST_F(Ending, AStopWithoutALogdirIsAFailure) {
  SupervisedTraining one = training();
  one.supervisor.logdir.clear();
  one.before_step_done = stop_after(5);
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(outcome.exit_codes, Each(kExitFailure));
  EXPECT_THAT(outcome.lines, Contains(HasSubstr("nothing is saved without a logdir")));
  one.before_step_done = {};
  EXPECT_THAT(run_supervised(one).exit_codes, Each(0)) << "one that finishes has nothing to save";
}

// Whether a call would change what lies at a path, at which checkpoints are.
bool changes(std::string_view call, const std::string& path) {
  return (call == "write" || call == "sync") && path.find("/step-") != std::string::npos;
}

TEST_F(Ending, ALastStateThatIsNotOnTheDiskIsAFailureOfEveryRank) {
  for (const bool stops : {true, false}) {
    HookedDisk full([](std::string_view call, const std::string& path) {
      return changes(call, path) ? ENOSPC : 0;
    });
    SupervisedTraining one = training();
    one.supervisor.files = &full;
    if (stops) one.before_step_done = stop_after(5);
    const SupervisedOutcome outcome = run_to_failure(one);
    EXPECT_THAT(outcome.errors,
                Each(HasSubstr(", the last one, is not saved in " + folder_.path())));
    EXPECT_THAT(outcome.exit_codes, Each(kExitFailure));
    EXPECT_THAT(outcome.lines, Contains(HasSubstr("was not written: ")));
    EXPECT_FALSE(read_training_record(disk(), folder_.path()).finished_step)
        << "an evaluator would wait for a step that never comes";
  }
  SupervisedTraining one = training();
  EXPECT_EQ(run_supervised(one).finished, "done in 21") << "a start after that begins anew";
}

TEST_F(Ending, ALastSaveThatFailsOnceIsTriedAgain) {
  int failures = 1;
  HookedDisk full([&](std::string_view call, const std::string& path) {
    return changes(call, path) && failures-- > 0 ? EIO : 0;
  });
  SupervisedTraining one = training();
  one.supervisor.files = &full;
  EXPECT_THAT(run_supervised(one).exit_codes, Each(0));
  EXPECT_LT(failures, 0);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(kStepsOfEpoch));
}

TEST_F(Ending, ADirectoryThatCannotBeWrittenIsRefusedAtTheStart) {
  SupervisedTraining one = training();
  one.supervisor.logdir = "/proc/nowhere/logs";
  const SupervisedOutcome outcome = run_to_failure(one);
  EXPECT_THAT(outcome.errors, Each(HasSubstr("/proc/nowhere")));
  EXPECT_THAT(outcome.began_at, testing::IsEmpty());
}

// A disk that does not answer for files with this in their path until it is let go.
class HangingDisk {
 public:
  explicit HangingDisk(std::string part)
      : files_([this, part = std::move(part)](std::string_view call, const std::string& path) {
          if (call != "sync" || path.find(part) == std::string::npos) return 0;
          const bool answers = answers_.try_acquire_for(std::chrono::seconds(60));
          answers_.release();
          return answers ? 0 : EIO;
        }) {}
  HangingDisk(const HangingDisk&) = delete;
  HangingDisk& operator=(const HangingDisk&) = delete;
  ~HangingDisk() { let_go(); }

  void let_go() { answers_.release(); }
  FileSystem* files() { return &files_; }

 private:
  std::counting_semaphore<> answers_{0};
  HookedDisk files_;
};

TEST_F(Ending, TrainingGoesOnBesideASlowDisk) {
  HangingDisk slow("/step-5.");
  SupervisedTraining one = training();
  one.supervisor.files = slow.files();
  one.supervisor.save_steps = 5;
  one.after_step_done = [&](Supervisor& supervisor, int rank) {
    if (rank == 0 && supervisor.global_step() == 17) slow.let_go();
  };
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(outcome.lines,
              Contains("the checkpoint of step 5 is still being written: that of step 10 is passed "
                       "over, and others until it is done"));
  EXPECT_THAT(outcome.lines, Not(Contains(HasSubstr("that of step 15"))));
  EXPECT_THAT(steps_in(folder_.path()), AllOf(Contains(5U), Contains(21U), Not(Contains(10U))));
}

TEST_F(Ending, TheLastSaveWaitsForADiskThatHangsNoLongerThanItsTimeout) {
  for (const bool stops : {true, false}) {
    HangingDisk hanging(stops ? "/step-5." : "/step-21.");
    SupervisedTraining one = training();
    one.supervisor.files = hanging.files();
    one.supervisor.save_timeout = 0.3;
    if (stops) one.before_step_done = stop_after(5);
    const SupervisedOutcome outcome = run_to_failure(one);
    EXPECT_THAT(outcome.errors, Each(HasSubstr(", the last one, is not saved in")));
    EXPECT_THAT(outcome.exit_codes, Each(kExitFailure));
    EXPECT_THAT(outcome.lines, Contains(HasSubstr("the disk of " + folder_.path() + " has not")));
  }
}

TEST_F(Ending, ASignalIsSeenInAValidationAndTheEpochEndsAfterTheRestart) {
  SupervisedTraining one = training();
  one.epochs = 2;
  one.in_validation = [](Supervisor&, int) {};
  const SupervisedOutcome whole = run_supervised([&] {
    SupervisedTraining other = one;
    other.supervisor.logdir.clear();
    return other;
  }());
  int batches = 0;
  one.in_validation = [&](Supervisor&, int rank) {
    if (rank == 0 && ++batches == 2) raise(SIGTERM);
  };
  const SupervisedOutcome stopped = run_supervised(one);
  EXPECT_THAT(stopped.exit_codes, Each(75));
  EXPECT_EQ(batches, 2) << "of six";
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(kStepsOfEpoch));
  one.in_validation = [](Supervisor&, int) {};
  const SupervisedOutcome rest = run_supervised(one);
  EXPECT_THAT(rest.began_at, Each(kStepsOfEpoch));
  EXPECT_EQ(rest.hashes, whole.hashes);
  EXPECT_EQ(rest.tensors, whole.tensors);
  EXPECT_EQ(rest.fit.training.samples, 205);
}

TEST_F(Ending, AfterSoManySecondsItStops) {
  SupervisedTraining one = training();
  one.supervisor.max_seconds = 1e-9;
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(outcome.exit_codes, Each(75));
  EXPECT_EQ(outcome.fit.steps, 1U);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(1U));
  one.supervisor.max_seconds = 1e9;
  EXPECT_EQ(run_supervised(one).finished, "done in 20");
}

// Sets a variable of the environment for as long as it lives.
class WithVariable {
 public:
  WithVariable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~WithVariable() { unsetenv(name_); }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
};

TEST_F(Ending, ItStopsBeforeSlurmEndsItsJob) {
  const auto in_seconds = [](int seconds) { return std::to_string(std::time(nullptr) + seconds); };
  SupervisedTraining one = training();
  {
    const WithVariable end("SLURM_JOB_END_TIME", in_seconds(0));
    const SupervisedOutcome outcome = run_supervised(one);
    EXPECT_THAT(outcome.exit_codes, Each(75));
    EXPECT_EQ(outcome.fit.steps, 1U);
    one.supervisor.max_seconds = 1e9;
    one.before_step_done = stop_after(3);
    EXPECT_EQ(run_supervised(one).fit.steps, 2U) << "a limit of its own counts more";
    one.supervisor.max_seconds = 0.0;
    one.before_step_done = {};
  }
  for (const auto& [text, step] : {std::pair("Unknown", 5U), {"2026-11-25T00:00:00", 7U}}) {
    const WithVariable end("SLURM_JOB_END_TIME", text);
    one.before_step_done = stop_after(step);
    EXPECT_EQ(run_supervised(one).fit.steps, 2U) << text << ": no time is no limit";
    one.before_step_done = {};
  }
  const WithVariable end("SLURM_JOB_END_TIME", in_seconds(3600));
  EXPECT_EQ(run_supervised(one).finished, "done in 14");
}

}  // namespace
}  // namespace ronde::trainer
