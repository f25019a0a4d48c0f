// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training: which of them stay, which one training goes on from, and what is
// said of those that could not be written or read.
#include "bindings/trainer/keep/checkpoints.h"
#include "bindings/trainer/keep/checkpoint_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>  // for tsan: checkpoints are written on one

#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/keep/checkpoint_files.h"
#include "test/unit/trainer/keep/no_more_threads.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class CheckpointsTest : public CheckpointFiles {
 protected:
  std::unique_ptr<Checkpoints> open(std::size_t keep = 2) {
    return std::make_unique<Checkpoints>(CheckpointOptions{folder_, keep}, say());
  }
  // Read after flush(), which waits for the thread that writes.
  PrintLine say() {
    return [this](const std::string& line) { said_.push_back(line); };
  }
  static void save(Checkpoints& checkpoints, std::uint64_t step,
                   std::optional<double> metric = {}) {
    SmallModel model = model_of(step);
    EXPECT_TRUE(checkpoints.save(state_of(step), model.tensors(), metric, std::chrono::minutes(1)));
  }
  // The step that a training goes on from, with its tensors as they were; 0: from none.
  static std::uint64_t restored(Checkpoints& checkpoints, const std::string& how = "auto",
                                const std::string& job = "") {
    SmallModel model;
    const auto state =
        checkpoints.restore({.how = how, .job = job, .flags = state_of(0).flags}, model.tensors());
    if (!state.has_value()) {
      EXPECT_EQ(model, SmallModel{});
      return 0;
    }
    EXPECT_EQ(state->epoch, state_of(state->global_step).epoch);
    EXPECT_EQ(model, model_of(state->global_step));
    return state->global_step;
  }
  std::string refusal(const RestoreOptions& options) {
    const auto checkpoints = open();
    SmallModel model;
    const std::string error =
        error_of<TrainerError>([&] { checkpoints->restore(options, model.tensors()); });
    EXPECT_EQ(model, SmallModel{});
    return error;
  }
  [[nodiscard]] std::vector<std::uint64_t> steps() const {
    return CheckpointDirectory::steps(disk(), folder_);
  }
  // The steps of those that were damaged.
  [[nodiscard]] std::vector<std::uint64_t> put_aside() const {
    std::vector<std::uint64_t> aside;
    for (const std::uint64_t step : {10U, 20U, 25U, 26U, 30U}) {
      if (std::filesystem::exists(checkpoint_path(folder_, step) + ".damaged")) {
        aside.push_back(step);
      }
    }
    return aside;
  }
  void damage(std::uint64_t step) {
    std::string bytes = read_file(disk(), tensors_file(step));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    overwrite(tensors_file(step), bytes);
  }
  // Saves these steps, with this one as the best.
  void prepare(const std::vector<std::uint64_t>& steps, std::uint64_t best = 0) {
    const auto checkpoints = open(steps.size());
    restored(*checkpoints);
    for (const std::uint64_t step : steps) {
      save(*checkpoints, step, step == best ? std::optional(0.1) : std::nullopt);
    }
    EXPECT_TRUE(checkpoints->flush());
  }

  std::vector<std::string> said_;
};

TEST_F(CheckpointsTest, ComeBack) {
  {
    const auto checkpoints = open();
    EXPECT_EQ(restored(*checkpoints), 0U);
    save(*checkpoints, 5);
    save(*checkpoints, 8);
    EXPECT_TRUE(checkpoints->flush());
    save(*checkpoints, 9);  // and the end waits too
  }
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_EQ(restored(*open(), "must"), 9U);
}

// The values of the moment of save() are written, whatever becomes of them.
TEST_F(CheckpointsTest, AreCopies) {
  {
    const auto checkpoints = open();
    SmallModel model = model_of(0);
    for (std::uint64_t step = 1; step <= 20; ++step) {
      model = model_of(step);
      checkpoints->save(state_of(step), model.tensors(), {}, std::chrono::minutes(1));
      model = model_of(1000);
    }
  }
  EXPECT_EQ(restored(*open()), 20U);
}

TEST_F(CheckpointsTest, TheLastFewStay) {
  prepare({8, 9, 10});
  {
    const auto checkpoints = open(3);
    restored(*checkpoints);
    for (const std::uint64_t step : {99U, 100U}) save(*checkpoints, step);
    EXPECT_TRUE(checkpoints->flush());
    EXPECT_THAT(steps(), ElementsAre(10, 99, 100));
    save(*checkpoints, 100);  // the same step again
    EXPECT_TRUE(checkpoints->flush());
    EXPECT_THAT(steps(), ElementsAre(10, 99, 100));
  }
  const auto none = open(0);
  restored(*none);
  save(*none, 101);
  EXPECT_TRUE(none->flush());
  EXPECT_THAT(steps(), ElementsAre(101));
}

TEST_F(CheckpointsTest, TheBestStaysAlsoAfterARestart) {
  {
    const auto checkpoints = open(1);
    restored(*checkpoints);
    EXPECT_FALSE(checkpoints->is_best(std::numeric_limits<double>::quiet_NaN()));
    save(*checkpoints, 1, std::numeric_limits<double>::quiet_NaN());
    save(*checkpoints, 2, 0.5);
    save(*checkpoints, 3, 0.1);
    EXPECT_FALSE(checkpoints->is_best(0.3));
    save(*checkpoints, 4);
    save(*checkpoints, 5, 0.3);
    EXPECT_TRUE(checkpoints->flush());
    EXPECT_THAT(steps(), ElementsAre(3, 5));
  }
  const auto checkpoints = open(1);
  EXPECT_EQ(restored(*checkpoints), 5U);
  EXPECT_FALSE(checkpoints->is_best(0.2));
  save(*checkpoints, 6, 0.2);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(steps(), ElementsAre(3, 6));
  EXPECT_TRUE(checkpoints->is_best(0.05));
  save(*checkpoints, 7, 0.05);
  save(*checkpoints, 8);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(steps(), ElementsAre(7, 8));
}

// Otherwise an epoch that is not as good would never be kept.
TEST_F(CheckpointsTest, WhatWasNotWrittenIsNotTheBest) {
  const auto checkpoints = open();
  restored(*checkpoints);
  std::filesystem::rename(folder_, folder_ + ".away");
  save(*checkpoints, 1, 0.1);
  EXPECT_FALSE(checkpoints->flush());
  std::filesystem::rename(folder_ + ".away", folder_);
  EXPECT_TRUE(checkpoints->is_best(0.2));
}

TEST_F(CheckpointsTest, ADamagedOneIsSkippedByName) {
  prepare({10, 20, 30});
  damage(30);
  std::filesystem::remove(state_file(20));
  said_.clear();
  {
    const auto checkpoints = open();
    EXPECT_EQ(restored(*checkpoints), 10U);
    EXPECT_THAT(said_, ElementsAre(AllOf(StartsWith("checkpoint of step 30 is skipped: " +
                                                    tensors_file(30) + ": its checksum is crc32:"),
                                         EndsWith("it is truncated or damaged")),
                                   "checkpoint of step 20 is skipped: " + state_file(20) +
                                       ": No such file or directory"));
    // They are read no more, and stay for whoever can mend them until all that is kept is newer.
    save(*checkpoints, 25);
    EXPECT_TRUE(checkpoints->flush());
    EXPECT_THAT(steps(), ElementsAre(10, 25));
    EXPECT_THAT(put_aside(), ElementsAre(20, 30));
    save(*checkpoints, 26);
    EXPECT_TRUE(checkpoints->flush());
    EXPECT_THAT(steps(), ElementsAre(25, 26));
    EXPECT_THAT(put_aside(), ElementsAre(30));
  }
  damage(25);
  damage(26);
  EXPECT_THAT(refusal({.flags = state_of(0).flags}),
              AllOf(StartsWith("no checkpoint in " + folder_ + " is whole: mend one, or use"),
                    HasSubstr("--restore never")));
  EXPECT_THAT(steps(), ElementsAre(25, 26));
  EXPECT_THAT(put_aside(), ElementsAre(30)) << "no more than before";
}

// Whoever names one wants no other.
TEST_F(CheckpointsTest, ADamagedOneThatIsNamedIsRefusedAndNothingIsPutAside) {
  prepare({10, 20});
  damage(20);
  said_.clear();
  EXPECT_THAT(refusal({.how = "step-20", .flags = state_of(0).flags}),
              StartsWith(tensors_file(20) + ": its checksum is crc32:"));
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_THAT(steps(), ElementsAre(10, 20));
}

TEST_F(CheckpointsTest, MustNeedsOne) {
  EXPECT_EQ(refusal({.how = "must"}), "there is no checkpoint in " + folder_ +
                                          ", and --restore must asks for one: check --logdir");
}

TEST_F(CheckpointsTest, NeverBeginsAnewAndKeepsTheOthersUntilItHasSaved) {
  prepare({100, 200}, 100);
  {
    const auto checkpoints = open();
    EXPECT_EQ(restored(*checkpoints, "never", "job"), 0U);
    EXPECT_THAT(steps(), ElementsAre(100, 200));
  }
  EXPECT_THAT(refusal({.flags = state_of(0).flags}),
              HasSubstr("has saved nothing: use --restore step-200 to go on from the earlier one"));
  {
    const auto checkpoints = open();
    EXPECT_EQ(restored(*checkpoints, "never", "job"), 0U);
    EXPECT_TRUE(checkpoints->is_best(0.5));
    save(*checkpoints, 10);
    EXPECT_TRUE(checkpoints->flush());
    EXPECT_THAT(steps(), ElementsAre(10));
  }
  // A restart of that job goes on, and another one begins anew.
  EXPECT_EQ(restored(*open(), "never", "job"), 10U);
  EXPECT_EQ(restored(*open(), "never", "another job"), 0U);
  EXPECT_THAT(steps(), ElementsAre(10));
  EXPECT_EQ(restored(*open(), "step-10"), 10U);
}

TEST_F(CheckpointsTest, GoesOnFromTheOneThatIsNamed) {
  prepare({10, 20, 30}, 20);
  EXPECT_EQ(restored(*open(), "best"), 20U);
  EXPECT_EQ(restored(*open(), "step-30"), 30U);
  EXPECT_EQ(restored(*open(), "step-10"), 10U);
  const TemporaryFolder elsewhere;
  const std::string copy = elsewhere.path() + "/copy";
  std::filesystem::copy(checkpoint_path(folder_, 20), copy);
  {
    const auto checkpoints = open();
    EXPECT_EQ(restored(*checkpoints, copy), 20U);
    save(*checkpoints, 21);
    EXPECT_TRUE(checkpoints->flush());
  }
  EXPECT_THAT(steps(), ElementsAre(21));
  EXPECT_EQ(refusal({.how = "step-7"}),
            "--restore step-7: there is no such checkpoint in " + folder_ + "; there are step-21");
  EXPECT_THAT(refusal({.how = "nevr"}), HasSubstr("there is no such checkpoint"));
}

// Also in one process, where an earlier kind of lock would let both in.
TEST_F(CheckpointsTest, AnotherTrainingMayNotHaveTheDirectory) {
  const OwnerPatience short_patience{.ending = std::chrono::milliseconds(20),
                                     .silence = std::chrono::seconds(30),
                                     .look = std::chrono::milliseconds(10)};
  const auto first = open();
  const std::string here =
      error_of([&] { const Checkpoints second({folder_}, say(), disk(), short_patience); });
  EXPECT_EQ(here, folder_ + " is held by another training (process " + std::to_string(::getpid()) +
                      " on host " + here.substr(here.find(" on host ") + 9));
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string error =
        error_of([&] { const Owner second(disk(), folder_, short_patience); });
    static_cast<void>(!::write(pipe[1], error.data(), error.size()));
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  std::array<char, 500> error{};
  ::close(pipe[1]);
  const ssize_t size = ::read(pipe[0], error.data(), error.size() - 1);
  ::close(pipe[0]);
  EXPECT_GT(size, 0);
  EXPECT_EQ(here, error.data());
}

TEST_F(CheckpointsTest, OtherFlagsAreRefusedUnlessTheyAreAccepted) {
  prepare({10});
  RestoreOptions options{.flags = {{"--model", "cnn"}, {"--data", ""}, {"--seed", "2"}}};
  const std::string changes = "--model was mlp and is now cnn; --seed was 1 and is now 2";
  EXPECT_EQ(refusal(options), folder_ + "/step-10 is of a training with other flags: " + changes +
                                  ": use another --logdir, or --restore never, which replaces "
                                  "what is there, or --accept-changes on, which goes on");
  options.accept_changes = true;
  SmallModel model;
  EXPECT_TRUE(open()->restore(options, model.tensors()));
  EXPECT_EQ(said_.back(), "this is another training from here on: " + changes);
}

TEST_F(CheckpointsTest, AnotherModelIsRefused) {
  prepare({10});
  std::vector<float> values(6, 7.0F);
  const auto error = [&](const std::vector<StateTensor>& tensors) {
    return error_of<TrainerError>(
        [&] { open()->restore({.how = "must", .flags = state_of(0).flags}, tensors); });
  };
  const StateTensor weight{"fc/weight", {2, 3}, values};
  const StateTensor other_shape{"fc/weight", {3, 2}, values};
  const StateTensor moment{"fc/weight/adam/m", {2}, std::span(values).first(2)};
  EXPECT_THAT(error({weight}), AllOf(StartsWith(folder_ + "/step-10 is of another model: "),
                                     HasSubstr("model: fc/weight/adam/m is missing here: use")));
  EXPECT_THAT(error({other_shape, moment}),
              HasSubstr("model: fc/weight is 2 x 3 there and 3 x 2 here: use another --logdir"));
  std::vector<StateTensor> many{moment, weight};
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
    many.push_back({name, {6}, values});
  }
  EXPECT_THAT(error(many), HasSubstr("d is missing there; and 2 more: use"));
  EXPECT_EQ(values, std::vector<float>(6, 7.0F));
}

// It may be mended: a start that passed over it would lose what it holds.
TEST_F(CheckpointsTest, WhatCannotBeReadEndsTheStart) {
  prepare({10, 20});
  std::filesystem::remove(state_file(20));
  std::filesystem::create_directory(state_file(20));  // root cannot read that either
  EXPECT_THAT(error_of<FileError>([&] { restored(*open()); }),
              HasSubstr("step-20/state.json: Is a directory"));
  EXPECT_THAT(steps(), ElementsAre(10, 20));
}

TEST_F(CheckpointsTest, WhatCannotBeWrittenIsSaid) {
  const auto checkpoints = open();
  restored(*checkpoints);
  save(*checkpoints, 80);
  EXPECT_TRUE(checkpoints->flush());
  std::filesystem::rename(folder_, folder_ + ".away");
  save(*checkpoints, 120);
  EXPECT_FALSE(checkpoints->flush());
  EXPECT_EQ(said_.back(), "checkpoint of step 120 was not written: " + folder_ +
                              " was taken over by another training, or moved away; the one of "
                              "step 80 stays");
  std::filesystem::rename(folder_ + ".away", folder_);
  save(*checkpoints, 160);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(steps(), ElementsAre(80, 160));
}

TEST_F(CheckpointsTest, WhatHasNoThreadIsSaidAndTrainingGoesOn) {
  const auto checkpoints = open();
  restored(*checkpoints);
  save(*checkpoints, 80);
  EXPECT_TRUE(checkpoints->flush());
  {
    const NoMoreThreads none;
    save(*checkpoints, 120);
    EXPECT_FALSE(checkpoints->flush());
    EXPECT_THAT(said_, ElementsAre(StartsWith("step 120 is not saved: no thread for it: ")));
    EXPECT_THAT(error_of([&] { checkpoints->set_finished(80, "goal", "done"); }),
                HasSubstr("cannot be told whether it has finished: no thread for it: "));
  }
  save(*checkpoints, 160);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(steps(), ElementsAre(80, 160));
}

TEST_F(CheckpointsTest, WhereNoDirectoryCanBe) {
  overwrite(folder_ + "/file", "");
  EXPECT_EQ(error_of([&] { const Checkpoints none({folder_ + "/file/logs"}, say()); }),
            folder_ + "/file/logs: Not a directory: name a --logdir that can be made");
}

TEST_F(CheckpointsTest, WhatTheKilledHaveLeftIsRemovedOrPutBack) {
  prepare({7, 8});
  std::filesystem::rename(checkpoint_path(folder_, 7), checkpoint_path(folder_, 7) + ".3.old.tmp");
  std::filesystem::copy(checkpoint_path(folder_, 8), checkpoint_path(folder_, 8) + ".3.old.tmp");
  for (const char* name : {"/step-7.3.tmp", "/step-9.3.tmp", "/notes.tmp"}) {
    std::filesystem::create_directory(folder_ + name);
    overwrite(folder_ + name + "/state.json", "half");
  }
  said_.clear();
  EXPECT_EQ(restored(*open()), 8U);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("step-7", "step-8", "notes.tmp", "lock", StartsWith("owner-")));
  EXPECT_EQ(read_checkpoint(disk(), checkpoint_path(folder_, 7)).state.global_step, 7U);
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace ronde::trainer
