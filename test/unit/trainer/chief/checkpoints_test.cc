// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training: which of them stay, which one training goes on from, and what is
// said of those that could not be written or read.
#include "bindings/trainer/chief/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>  // for tsan: checkpoints are written on one

#include "bindings/trainer/chief/durable_files.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/chief/checkpoint_files.h"

namespace ronde::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class CheckpointsTest : public CheckpointFiles {
 protected:
  std::unique_ptr<Checkpoints> open(std::size_t keep = 2) {
    return std::make_unique<Checkpoints>(CheckpointOptions{folder_, keep}, say());
  }
  // Read after flush(), which waits for the thread that writes.
  Say say() {
    return [this](const std::string& line) { said_.push_back(line); };
  }
  static void save(Checkpoints& checkpoints, std::uint64_t step) {
    SmallModel model = model_of(step);
    checkpoints.save(state_of(step), model.tensors());
  }
  static void save_if_best(Checkpoints& checkpoints, std::uint64_t step, double metric) {
    SmallModel model = model_of(step);
    checkpoints.save_if_best(state_of(step), model.tensors(), metric);
  }
  // The step that a training goes on from, with its tensors as they were; 0: from none.
  std::uint64_t restored(Checkpoints& checkpoints, Restore restore = Restore::kAuto) {
    SmallModel model;
    const auto state = checkpoints.restore(restore, state_of(0).flags, model.tensors());
    if (!state.has_value()) {
      EXPECT_EQ(model, SmallModel{});
      return 0;
    }
    EXPECT_EQ(*state, state_of(state->global_step));
    EXPECT_EQ(model, model_of(state->global_step));
    return state->global_step;
  }
  void damage(std::uint64_t step) {
    std::string bytes = read_file(tensors_file(step));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    overwrite(tensors_file(step), bytes);
  }

  std::vector<std::string> said_;
};

TEST_F(CheckpointsTest, ComeBack) {
  {
    const auto checkpoints = open();
    EXPECT_EQ(restored(*checkpoints), 0U);
    save(*checkpoints, 5);
    save(*checkpoints, 8);
    EXPECT_EQ(restored(*checkpoints), 8U);  // waits for what is being written
    EXPECT_TRUE(checkpoints->flush());
    save(*checkpoints, 9);  // and the end waits too
  }
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_EQ(restored(*open(), Restore::kMust), 9U);
}

// The values of the moment of save() are written, whatever becomes of them.
TEST_F(CheckpointsTest, AreCopies) {
  const auto checkpoints = open();
  SmallModel model = model_of(0);
  for (std::uint64_t step = 1; step <= 20; ++step) {
    model = model_of(step);
    checkpoints->save(state_of(step), model.tensors());
    model = model_of(1000);
  }
  EXPECT_EQ(restored(*checkpoints), 20U);
}

TEST_F(CheckpointsTest, TheLastFewStay) {
  const auto checkpoints = open(3);
  for (const std::uint64_t step : {8U, 9U, 10U, 99U, 100U}) save(*checkpoints, step);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(10, 99, 100));
  save(*checkpoints, 100);  // the same step again
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(10, 99, 100));
  const auto none = open(0);
  save(*none, 101);
  EXPECT_TRUE(none->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(101));
}

TEST_F(CheckpointsTest, TheBestStaysAlsoAfterARestart) {
  auto checkpoints = open(1);
  save_if_best(*checkpoints, 1, std::numeric_limits<double>::quiet_NaN());  // no best
  save_if_best(*checkpoints, 2, 0.5);
  save_if_best(*checkpoints, 3, 0.1);
  save(*checkpoints, 4);
  save_if_best(*checkpoints, 5, 0.3);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(3, 5));
  EXPECT_EQ(read_checkpoint_state(folder_, 5).numbers,
            (std::map<std::string, double>{{"checkpoints/best_metric", 0.1},
                                           {"checkpoints/best_step", 3.0}}));
  checkpoints = open(1);
  EXPECT_EQ(restored(*checkpoints), 5U);
  save_if_best(*checkpoints, 6, 0.2);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(3, 6));
  save_if_best(*checkpoints, 7, 0.05);
  save(*checkpoints, 8);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(7, 8));
}

TEST_F(CheckpointsTest, ADamagedOneIsSkippedByName) {
  {
    const auto checkpoints = open(3);
    for (const std::uint64_t step : {10U, 20U, 30U}) save(*checkpoints, step);
  }
  damage(30);
  std::filesystem::remove(state_file(20));
  said_.clear();
  const auto checkpoints = open(1);
  EXPECT_EQ(restored(*checkpoints), 10U);
  EXPECT_THAT(said_, ElementsAre(AllOf(StartsWith("checkpoint of step 30 is skipped: " +
                                                  tensors_file(30) + ": its checksum is crc32:"),
                                       EndsWith("it is truncated or damaged")),
                                 "checkpoint of step 20 is skipped: " + state_file(20) +
                                     ": No such file or directory"));
  // They count for nothing, stay for whoever can read them, and are written over.
  save(*checkpoints, 11);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(11, 20, 30));
  save(*checkpoints, 20);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(20, 30));
  damage(20);
  EXPECT_EQ(restored(*checkpoints), 0U);
  EXPECT_EQ(error_of<TrainerError>([&] { restored(*checkpoints, Restore::kMust); }),
            "there is no whole checkpoint in " + folder_ +
                ", and --restore must asks for one: check --logdir");
}

TEST_F(CheckpointsTest, NeverBeginsAnew) {
  {
    const auto checkpoints = open();
    save_if_best(*checkpoints, 100, 0.1);
    save(*checkpoints, 200);
  }
  const auto checkpoints = open();
  EXPECT_EQ(restored(*checkpoints, Restore::kNever), 0U);
  // Nobody goes on from them any more, and they stay until the first new one is there.
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre());
  EXPECT_THAT(list_checkpoints(folder_ + "/replaced"), ElementsAre(100, 200));
  save(*checkpoints, 10);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(10));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/replaced"));
  EXPECT_EQ(restored(*checkpoints), 10U);
}

TEST_F(CheckpointsTest, AnotherProcessMayNotHaveTheDirectory) {
  const auto checkpoints = open();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string error;
    try {
      const FileLock lock(folder_ + "/lock", std::chrono::milliseconds(50));
    } catch (const DataError& refused) {
      error = refused.what();
    }
    static_cast<void>(!::write(pipe[1], error.data(), error.size()));
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  std::array<char, 500> error{};
  ::close(pipe[1]);
  const ssize_t size = ::read(pipe[0], error.data(), error.size() - 1);
  ::close(pipe[0]);
  EXPECT_GT(size, 0);
  EXPECT_THAT(error.data(), HasSubstr("lock is held by another training"));
}

TEST_F(CheckpointsTest, OtherFlagsAreRefused) {
  const auto checkpoints = open();
  save(*checkpoints, 10);
  SmallModel model;
  const auto error = error_of<TrainerError>([&] {
    checkpoints->restore(Restore::kAuto, {{"--model", "cnn"}, {"--data", ""}, {"--seed", "2"}},
                         model.tensors());
  });
  EXPECT_EQ(error, folder_ +
                       "/step-10 is of a training with other flags: --model was mlp and is now "
                       "cnn; --seed was 1 and is now 2: use another --logdir, or --restore never, "
                       "which replaces what is there");
  EXPECT_EQ(model, SmallModel{});
}

TEST_F(CheckpointsTest, AnotherModelIsRefused) {
  const auto checkpoints = open();
  save(*checkpoints, 10);
  std::vector<float> values(6, 7.0F);
  const auto error = [&](const std::vector<StateTensor>& tensors) {
    return error_of<TrainerError>(
        [&] { checkpoints->restore(Restore::kMust, state_of(0).flags, tensors); });
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

TEST_F(CheckpointsTest, WhatCannotBeWrittenIsSaidAndTrainingGoesOn) {
  const auto checkpoints = open();
  save(*checkpoints, 80);
  EXPECT_TRUE(checkpoints->flush());
  // A file where the directory should be, which root cannot write to either.
  std::filesystem::rename(folder_, folder_ + ".away");
  overwrite(folder_, "");
  save(*checkpoints, 120);
  EXPECT_FALSE(checkpoints->flush());
  EXPECT_TRUE(checkpoints->flush());  // since then
  EXPECT_EQ(said_.back(),
            "checkpoint of step 120 was not written: " + folder_ +
                "/step-120.tmp: Not a directory; the one of step 80 stays; training goes on");
  std::filesystem::remove(folder_);
  std::filesystem::rename(folder_ + ".away", folder_);
  save(*checkpoints, 160);
  EXPECT_TRUE(checkpoints->flush());
  EXPECT_THAT(list_checkpoints(folder_), ElementsAre(80, 160));
}

TEST_F(CheckpointsTest, WhereThereIsNoneYet) {
  overwrite(folder_ + "/file", "");
  Checkpoints checkpoints({folder_ + "/file/logs", 5}, say());
  save(checkpoints, 7);
  EXPECT_FALSE(checkpoints.flush());
  EXPECT_THAT(said_.back(), EndsWith("Not a directory; there is no earlier one; training goes on"));
}

TEST_F(CheckpointsTest, WhatTheKilledHaveLeftIsRemoved) {
  std::filesystem::create_directory(folder_ + "/step-7.tmp");
  overwrite(folder_ + "/step-7.tmp/state.json", "half");
  EXPECT_EQ(restored(*open()), 0U);
  std::filesystem::remove(folder_ + "/lock");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace ronde::trainer
