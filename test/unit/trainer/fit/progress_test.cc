// SPDX-License-Identifier: Apache-2.0
// What a run shows: the bar's text, and what goes to which stream and when.
#include "bindings/trainer/fit/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <sstream>

namespace ronde::trainer {
namespace {

TrainingState at(std::size_t epoch, std::size_t epochs, std::size_t samples,
                 std::size_t samples_per_epoch) {
  TrainingState state;
  state.epoch = epoch;
  state.epochs = epochs;
  state.samples = samples;
  state.samples_per_epoch = samples_per_epoch;
  state.training = {50.0, 0.0, 100.0};
  return state;
}

void start(Progress& progress) {
  TrainingState state;
  progress.on_start(state);
}
void step(Progress& progress, TrainingState state) { progress.on_step(state); }
void epoch_done(Progress& progress, TrainingState state) { progress.on_epoch(state); }

TEST(ProgressBar, ShowsEpochShareRateAndTimeLeft) {
  EXPECT_EQ(progress_bar(at(0, 2, 0, 100), 0.0),
            "epoch 1/2 [>                       ]   0 %  0 images/s  0 s left");
  EXPECT_EQ(progress_bar(at(1, 2, 0, 100), 10.0),
            "epoch 2/2 [============>           ]  50 %  10 images/s  10 s left");
  EXPECT_EQ(progress_bar(at(1, 2, 100, 100), 20.0),
            "epoch 2/2 [========================] 100 %  10 images/s  0 s left");
}

TEST(DurationText, FitsItsLength) {
  EXPECT_EQ(duration_text(0.0), "0 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1 min 00 s");
  EXPECT_EQ(duration_text(3599.0), "59 min 59 s");
  EXPECT_EQ(duration_text(7620.0), "2 h 07 min");
  EXPECT_EQ(duration_text(1e300), "1000000 h 00 min");
}

TEST(Progress, DrawsTheBarTenTimesASecondAndClearsItForALine) {
  double now = 100.0;
  std::ostringstream lines;
  std::ostringstream bar;
  Progress progress(&lines, &bar, [&now] { return now; });
  start(progress);
  step(progress, at(0, 1, 10, 100));
  EXPECT_EQ(bar.str(), "");
  now = 100.25;
  step(progress, at(0, 1, 20, 100));
  EXPECT_EQ(bar.str(), "\r" + progress_bar(at(0, 1, 20, 100), 0.25) + "\x1b[K");
  now = 102.0;
  bar.str("");
  epoch_done(progress, at(0, 1, 100, 100));
  EXPECT_EQ(bar.str(), "\r\x1b[K");
  EXPECT_EQ(lines.str(), "epoch 1/1: loss 0.500000, 50 images/s, 2.0 s\n");
  lines.str("");
  TrainingState watched = at(0, 1, 100, 100);
  watched.training.watched["top_3_accuracy"] = {9.0, 10.0};
  now = 104.0;
  epoch_done(progress, watched);
  EXPECT_EQ(lines.str(), "epoch 1/1: loss 0.500000, top_3_accuracy 0.9, 50 images/s, 2.0 s\n");
}

TEST(Progress, ClearsTheBarWhenTheRunIsAbandoned) {
  double now = 0.0;
  std::ostringstream bar;
  {
    Progress progress(nullptr, &bar, [&now] { return now; });
    start(progress);
    now = 1.0;
    step(progress, at(0, 1, 20, 100));
    bar.str("");
  }
  EXPECT_EQ(bar.str(), "\r\x1b[K");
}

TEST(Progress, WithoutATerminalThereAreOnlyLines) {
  double now = 0.0;
  std::ostringstream lines;
  Progress progress(&lines, nullptr, [&now] { return now; });
  start(progress);
  now = 1.0;
  step(progress, at(0, 1, 20, 100));
  EXPECT_EQ(lines.str(), "");
  Progress silent(nullptr, nullptr, [&now] { return now; });
  start(silent);
  step(silent, at(0, 1, 20, 100));
  epoch_done(silent, at(0, 1, 100, 100));
}

}  // namespace
}  // namespace ronde::trainer
