// SPDX-License-Identifier: Apache-2.0
// What a save comes to beside the training: the command after it, and which one is the best.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "bindings/trainer/keep/checkpoints.h"
#include "test/unit/trainer/keep/checkpoint_files.h"
#include "test/unit/trainer/keep/hooked_disk.h"
#include "test/unit/trainer/keep/supervised_training.h"
#include "test/unit/trainer/temporary_folder.h"

namespace ronde::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Whether it becomes true within a time that is never reached where all is well.
bool becomes_true(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class Saves : public testing::Test {
 protected:
  [[nodiscard]] std::string in_folder(const std::string& name) const {
    return folder_.path() + '/' + name;
  }
  static std::vector<std::string> lines_of(const std::string& file) {
    std::vector<std::string> lines;
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  [[nodiscard]] SupervisedTraining training() const {
    return {.ranks = 2,
            .epochs = 2,
            .supervisor = {.logdir = in_folder("train"), .save_model_secs = 0.0}};
  }
  [[nodiscard]] PrintLine say() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      said_.push_back(line);
    };
  }
  [[nodiscard]] std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  // Saves a small model.
  static void save(Checkpoints& checkpoints, std::uint64_t step,
                   std::optional<double> metric = {}) {
    SmallModel model = model_of(step);
    EXPECT_TRUE(checkpoints.save(state_of(step), model.tensors(), metric, seconds(20)));
  }
  static void begin(Checkpoints& checkpoints) {
    SmallModel model;
    checkpoints.restore({.flags = state_of(0).flags}, model.tensors());
  }

  const TemporaryFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> said_;
};

TEST_F(Saves, TheCommandFindsEachCheckpoint) {
  SupervisedTraining one = training();
  one.supervisor.after_save =
      "test -f \"$RONDE_CHECKPOINT/state.json\" && "
      "echo \"$RONDE_CHECKPOINT\" >> " +
      in_folder("saved");
  EXPECT_THAT(run_supervised(one).exit_codes, Each(0));
  EXPECT_THAT(lines_of(in_folder("saved")),
              ElementsAre(in_folder("train/step-21"), in_folder("train/step-42")));
}

TEST_F(Saves, ACommandThatFailsIsSaidAndTheEndIsAFailure) {
  SupervisedTraining one = training();
  one.before_step_done = stop_after(5);
  one.supervisor.after_save = "exit 3";
  const SupervisedOutcome outcome = run_to_failure(one);
  EXPECT_THAT(outcome.lines, Contains("the command after the save of " + in_folder("train/step-5") +
                                      " has ended with 3: exit 3"));
  EXPECT_THAT(outcome.errors, Each(HasSubstr("step 5, the last one, is not saved in")));
  EXPECT_THAT(outcome.exit_codes, Each(kExitFailure));
  one.supervisor.after_save.clear();
  one.before_step_done = {};
  EXPECT_THAT(run_supervised(one).began_at, Each(5U)) << "it is on this disk all the same";
}

TEST_F(Saves, ACommandThatFailsInBetweenIsSaidAndTrainingGoesOn) {
  SupervisedTraining one = training();
  one.supervisor.after_save = "case $RONDE_CHECKPOINT in *-21) kill -9 $$; esac";
  const SupervisedOutcome outcome = run_supervised(one);
  EXPECT_THAT(outcome.lines, Contains(HasSubstr("the save of " + in_folder("train/step-21") +
                                                " was killed by signal 9")));
  EXPECT_THAT(outcome.exit_codes, Each(0));
}

bool has_ended(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  if (text.empty()) return true;
  return text[text.rfind(')') + 2] == 'Z';  // and is waited for by somebody else
}

TEST_F(Saves, ACommandThatHangsIsKilledWithItsChildren) {
  Checkpoints checkpoints({.directory = in_folder("train"),
                           .after_save = "sleep 1000 & echo $! > " + in_folder("child") + "; wait",
                           .timeout = milliseconds(500)},
                          say());
  begin(checkpoints);
  save(checkpoints, 1);
  EXPECT_FALSE(checkpoints.flush());
  EXPECT_THAT(said(), Contains(HasSubstr("did not end in time, and was killed: sleep 1000")));
  EXPECT_THAT(said(), Each(testing::Not(HasSubstr("has not answered")))) << "it is not the disk";
  const std::vector<std::string> child = lines_of(in_folder("child"));
  ASSERT_EQ(child.size(), 1U);
  EXPECT_TRUE(becomes_true([&] { return has_ended(child[0]); }));
}

TEST_F(Saves, ADirectoryThatCannotBeSyncedGetsOneWarning) {
  for (const int error : {EINVAL, EOPNOTSUPP, EBADF, EACCES}) {
    const std::string folder = in_folder("errno-" + std::to_string(error));
    HookedDisk simple([error](std::string_view call, const std::string& path) {
      const bool of_directories = call == (error == EACCES ? "open" : "sync");
      return of_directories && std::filesystem::is_directory(path) ? error : 0;
    });
    said_.clear();
    Checkpoints checkpoints({.directory = folder, .keep = 2}, say(), simple);
    begin(checkpoints);
    for (const std::uint64_t step : {1U, 2U, 3U}) save(checkpoints, step);
    EXPECT_TRUE(checkpoints.flush());
    EXPECT_THAT(said(), ElementsAre(HasSubstr(folder + " cannot be synced: after a power cut")));
    EXPECT_THAT(steps_in(folder), ElementsAre(2U, 3U)) << "old ones are removed all the same";
  }
}

TEST_F(Saves, AnErrorOfADirectoryIsNoWarning) {
  HookedDisk broken([this](std::string_view call, const std::string& path) {
    return call == "sync" && path == in_folder("train") ? EIO : 0;
  });
  Checkpoints checkpoints({.directory = in_folder("train")}, say(), broken);
  begin(checkpoints);
  save(checkpoints, 1);
  EXPECT_FALSE(checkpoints.flush());
  EXPECT_THAT(said(), ElementsAre(HasSubstr("checkpoint of step 1 was not written: ")));
}

TEST_F(Saves, AFileSystemWithoutLocksGetsOneWarningAndOneTraining) {
  HookedDisk simple(
      [](std::string_view call, const std::string&) { return call == "lock" ? ENOLCK : 0; });
  Checkpoints checkpoints({.directory = in_folder("train")}, say(), simple);
  begin(checkpoints);
  save(checkpoints, 1);
  EXPECT_TRUE(checkpoints.flush());
  EXPECT_THAT(said(), ElementsAre(HasSubstr("is on a file system without locks: owner-1 keeps")));
  EXPECT_THAT(error_of([&] { Checkpoints({.directory = in_folder("train")}, say(), simple); }),
              HasSubstr("is held by another training"));
}

// The disk has room for three checkpoints.
TEST_F(Saves, OnAFullDiskTheOldestGoesThatIsNeitherTheNewestNorTheBest) {
  HookedDisk full([this](std::string_view call, const std::string& path) {
    const bool writes = call == "write" && path.find("/step-") != std::string::npos;
    return writes && steps_in(in_folder("train")).size() >= 3 ? ENOSPC : 0;
  });
  Checkpoints checkpoints({.directory = in_folder("train"), .keep = 9}, say(), full);
  begin(checkpoints);
  save(checkpoints, 1, 0.5);
  for (const std::uint64_t step : {2U, 3U, 4U, 5U}) save(checkpoints, step);
  EXPECT_TRUE(checkpoints.flush());
  EXPECT_THAT(steps_in(in_folder("train")), ElementsAre(1U, 4U, 5U));
  EXPECT_THAT(said(), ElementsAre("the disk is full: the checkpoint of step 2 is removed to make "
                                  "room for that of step 4",
                                  "the disk is full: the checkpoint of step 3 is removed to make "
                                  "room for that of step 5"));
}

TEST_F(Saves, ABestThatCouldNotBeWrittenIsNone) {
  std::atomic<bool> fails{false};
  HookedDisk failing([&](std::string_view call, const std::string& path) {
    return fails && call == "write" && path.find("/step-") != std::string::npos ? EIO : 0;
  });
  Checkpoints checkpoints({.directory = in_folder("train"), .keep = 1}, say(), failing);
  begin(checkpoints);
  save(checkpoints, 1, 5.0);
  EXPECT_TRUE(checkpoints.flush());
  fails = true;
  save(checkpoints, 2, 3.0);
  EXPECT_TRUE(becomes_true([&] { return checkpoints.is_best(4.0); }));
  EXPECT_FALSE(checkpoints.is_best(6.0)) << "the first one is still there";
  fails = false;
  save(checkpoints, 3, 4.0);
  save(checkpoints, 4, 4.5);
  EXPECT_TRUE(checkpoints.flush());
  EXPECT_THAT(steps_in(in_folder("train")), ElementsAre(3U, 4U));
}

}  // namespace
}  // namespace ronde::trainer
