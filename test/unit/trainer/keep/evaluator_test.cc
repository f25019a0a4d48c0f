// SPDX-License-Identifier: Apache-2.0
// The evaluator beside a training: which checkpoints it scores, and when and why it ends. Time
// passes at its pauses alone, in which these tests let a training do something.
#include "bindings/trainer/keep/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/trainer/keep/logs.h"
#include "bindings/trainer/tensor/errors.h"
#include "test/unit/trainer/keep/checkpoint_files.h"
#include "test/unit/trainer/keep/hooked_disk.h"

namespace ronde::trainer {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class EvaluatorTest : public CheckpointFiles {
 protected:
  // A start of the training.
  std::unique_ptr<CheckpointDirectory> start(const std::string& restore = "auto") {
    auto training =
        std::make_unique<CheckpointDirectory>(disk(), folder_, 9, [](const std::string&) {});
    SmallModel model;
    training->restore({.how = restore, .flags = state_of(0).flags}, model.tensors());
    return training;
  }
  static void save(CheckpointDirectory& training, std::uint64_t step) {
    Snapshot snapshot{state_of(step), bytes_of(model_of(step)), {}};
    EXPECT_TRUE(training.write(snapshot));
  }

  // What happens in the pauses of the evaluator, one after the other; then nothing does.
  using Script = std::vector<std::function<void()>>;

  // Returns the steps whose tensors were scored; what was said is in said_.
  std::vector<std::uint64_t> evaluate(const Script& script = {}) {
    std::vector<std::uint64_t> scored;
    std::size_t pauses = 0;
    HookedDisk files([&](std::string_view call, const std::string&) {
      if (call == "pause" && pauses++ < script.size()) script[pauses - 1]();
      return 0;
    });
    SmallModel model;
    const std::size_t count = evaluate_checkpoints(
        {.directory = folder_,
         .idle_seconds = kIdle,
         .say = [this](const std::string& line) { said_.push_back(line); },
         .files = &files},
        {{"fc/weight", {2, 3}, model.weight}}, [&] {
          scored.push_back(static_cast<std::uint64_t>(model.weight[0] - SmallModel{}.weight[0]));
          Metrics metrics;
          metrics.add(1.0, 1, 2);
          return metrics;
        });
    EXPECT_EQ(count, scored.size());
    return scored;
  }

  static constexpr double kIdle = 30.0;
  static constexpr std::size_t kPausesOfTenSeconds = 50;
  std::vector<std::string> said_;
};

TEST_F(EvaluatorTest, ScoresEachCheckpointOnceAndEndsAtTheLastOfAFinishedTraining) {
  {
    const auto training = start();
    for (const std::uint64_t step : {21U, 42U, 63U}) save(*training, step);
    training->set_finished(63, "3 epochs", "done");
  }
  std::filesystem::resize_file(tensors_file(21), 20);
  EXPECT_THAT(evaluate(), ElementsAre(42U, 63U));
  EXPECT_THAT(said_, Contains(HasSubstr("checkpoint skipped: " + folder_ + "/step-21")));
  EXPECT_THAT(said_, Contains("step 63: loss 0.500000, accuracy 0.500000"));
  EXPECT_EQ(said_.back(), "the training has finished");
  EXPECT_EQ(MetricLog::last_step(folder_ + "/eval/metrics.jsonl"), 63U);
  EXPECT_THAT(evaluate(), IsEmpty()) << "it goes on after what an earlier one has scored";
  EXPECT_EQ(said_.back(), "the training has finished");
}

TEST_F(EvaluatorTest, SaysThatNothingCame) {
  EXPECT_THAT(evaluate(), IsEmpty());
  EXPECT_THAT(said_, ElementsAre("neither a new checkpoint nor another sign of a training in " +
                                 folder_ + " for 30 s"));
}

TEST_F(EvaluatorTest, WaitsForTheFirstCheckpointAsLongAsTheTrainingLives) {
  auto training = start();
  Script script(10 * kPausesOfTenSeconds, [] {});  // more than three times as long as it would wait
  for (std::size_t i = 0; i < script.size(); i += kPausesOfTenSeconds) {
    script[i] = [&] { training->beat(); };
  }
  script.emplace_back([&] { save(*training, 7); });
  script.emplace_back([&] { training->set_finished(7, "", ""); });
  script.emplace_back([&] { training.reset(); });
  EXPECT_THAT(evaluate(script), ElementsAre(7U));
  EXPECT_EQ(said_.back(), "the training has finished");
}

TEST_F(EvaluatorTest, EndsAfterATrainingThatHasFallenSilent) {
  auto training = start();
  save(*training, 7);
  EXPECT_THAT(evaluate(), ElementsAre(7U));
  EXPECT_THAT(said_.back(), HasSubstr("nor another sign of a training"));
}

TEST_F(EvaluatorTest, AnEndThatIsNoneAnyMoreDoesNotEndIt) {
  {
    const auto training = start();
    save(*training, 1);
    training->set_finished(1, "1 epoch", "done");
  }
  // Started once more with another goal, which it has not come to say yet.
  auto training = start();
  EXPECT_THAT(
      evaluate({[] {}, [&] { training->set_finished({}, "", ""); }, [&] { save(*training, 2); },
                [&] { training->set_finished(2, "", ""); }, [] {}, [&] { training.reset(); }}),
      ElementsAre(1U, 2U));
  EXPECT_EQ(said_.back(), "the training has finished");
}

TEST_F(EvaluatorTest, FollowsATrainingThatBeginsAnewWithLowerSteps) {
  auto training = start();
  save(*training, 50);
  const auto begin_anew = [&] {
    training.reset();
    training = start("never");
  };
  EXPECT_THAT(evaluate({[] {}, begin_anew, [] {}, [&] { save(*training, 3); }, [] {},
                        [&] { save(*training, 60); }}),
              ElementsAre(50U, 3U, 60U));
  // So does an evaluator that is started afterwards.
  begin_anew();
  save(*training, 2);
  EXPECT_THAT(evaluate(), ElementsAre(2U));
  EXPECT_EQ(MetricLog::last_step(folder_ + "/eval/metrics.jsonl"), 2U);
  std::vector<std::string> logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/eval")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("metrics.")) logs.push_back(name);
  }
  EXPECT_GE(logs.size(), 2U) << "that of the training before is still there";
}

TEST_F(EvaluatorTest, EndsBySigtermWithALineAnd75) {
  save(*start(), 1);
  try {
    (void)evaluate({[] { (void)std::raise(SIGTERM); }});
    ADD_FAILURE() << "it goes on";
  } catch (const TrainerError& error) {
    EXPECT_STREQ(error.what(),
                 "the evaluator was told to stop, and ends: checkpoints scored: 1; start it "
                 "again for those that come");
    EXPECT_EQ(error.exit_code(), kExitStopped);
  }
}

TEST_F(EvaluatorTest, TwoOfOneDirectoryAreRefused) {
  auto training = start();
  save(*training, 1);
  std::string error = "none";
  EXPECT_THAT(evaluate({[&] { error = error_of<TrainerError>([&] { evaluate(); }); }}),
              ElementsAre(1U));
  EXPECT_THAT(error, HasSubstr(folder_ + "/eval is held by another"));
}

TEST_F(EvaluatorTest, ACheckpointOfAnotherModelIsAnError) {
  auto training = start();
  save(*training, 1);
  std::vector<float> values(6);
  EXPECT_THAT(error_of<TrainerError>([&] {
                evaluate_checkpoints({.directory = folder_}, {{"fc/weight", {3, 2}, values}},
                                     [] { return Metrics(); });
              }),
              HasSubstr("step-1 is of another model"));
}

}  // namespace
}  // namespace ronde::trainer
