// SPDX-License-Identifier: Apache-2.0
// A training that uses a directory of checkpoints on a model of a disk, and what must be found
// there afterwards.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "bindings/trainer/keep/checkpoint_directory.h"
#include "test/unit/trainer/keep/checkpoint_files.h"
#include "test/unit/trainer/keep/disk_model.h"

namespace ronde::trainer {

inline const std::string kTrainFolder = "/train";

// Starts a training, which restores as it is told, writes some steps and ends.
struct Start {
  std::string how = "auto";
  std::uint64_t steps = 2;  // so many, from where it goes on
  bool finishes = false;
};

// What a training is told, or does, that decides what a later start must find.
struct Event {
  enum class Kind : std::uint8_t { kLeavesTheNewest, kWrites, kAcknowledged } kind;
  std::uint64_t step;
};

// What the trainings that have used a disk were told.
struct Told {
  std::uint64_t acknowledged = 0;   // the newest step of which a write has returned true
  std::set<std::uint64_t> written;  // steps of which a write has begun since then
  bool begins_anew = false;         // another than the newest was asked for since then

  void take(const Event& event) {
    if (event.kind == Event::Kind::kLeavesTheNewest) begins_anew = true;
    if (event.kind == Event::Kind::kWrites) written.insert(event.step);
    if (event.kind != Event::Kind::kAcknowledged) return;
    // One that was taken for dead may be told of its last step after the next has gone on from it.
    acknowledged = begins_anew ? event.step : std::max(acknowledged, event.step);
    begins_anew = false;
    std::erase_if(written, [this](std::uint64_t step) { return step <= acknowledged; });
  }
  [[nodiscard]] std::string shown() const {
    std::string text = std::to_string(acknowledged) + (begins_anew ? " anew" : "");
    for (const std::uint64_t step : written) text += ' ' + std::to_string(step);
    return text;
  }
};

// How far one start has come.
struct Outcome {
  bool has_directory = false;
  bool restored = false;
  std::uint64_t from = 0;  // the step; 0: it begins anew
  bool ended = false;
  std::string error;
};

// One start, in what another one does not see it.
class TrainingModel {
 public:
  using Tell = std::function<void(const Event&)>;

  TrainingModel(FileSystem& files, Start start, Tell tell)
      : files_(files), start_(std::move(start)), tell_(std::move(tell)) {}

  void run() {
    try {
      CheckpointDirectory directory(files_, kTrainFolder, 2, [](const std::string&) {},
                                    {kShort, 2 * kShort, kShort});
      outcome.has_directory = true;
      train(directory);
      outcome.has_directory = false;  // from here on others may have it
    } catch (const Killed&) {
      return;
    } catch (const std::exception& error) {
      outcome.has_directory = false;
      outcome.error = error.what();
    }
    outcome.ended = true;
  }

  Outcome outcome;

 private:
  static constexpr std::chrono::milliseconds kShort{1};

  void train(CheckpointDirectory& directory) {
    // Who does not go on with it has said that it may be lost, once there is something new.
    if (start_.how != "auto") tell_({Event::Kind::kLeavesTheNewest, 0});
    SmallModel model;
    const auto state = directory.restore({.how = start_.how, .job = "", .flags = state_of(0).flags},
                                         model.tensors());
    outcome.restored = true;
    if (state) outcome.from = state->global_step;
    if (state && model != model_of(state->global_step)) outcome.error = "other tensors";
    for (std::uint64_t i = 1; i <= start_.steps; ++i) {
      const std::uint64_t step = outcome.from + i;
      Snapshot snapshot{state_of(step), bytes_of(model_of(step)), {}};
      tell_({Event::Kind::kWrites, step});
      if (directory.write(snapshot)) tell_({Event::Kind::kAcknowledged, step});
    }
    if (start_.finishes) directory.set_finished(outcome.from + 1, "goal", "result");
  }

  FileSystem& files_;
  const Start start_;
  const Tell tell_;
};

inline FileSystem::Life dead(int /*process*/) { return FileSystem::Life::kDead; }
inline Fate all_is_well(const Call& /*call*/) { return {}; }

// Runs one start while no other process lives; how many calls it has made.
inline std::pair<Outcome, int> run_alone(DiskModel& disk, const Start& start, Told& told,
                                         const ProcessModel::Decide& decide,
                                         Mistake mistake = Mistake::kNone) {
  ProcessModel process(disk, 1, decide, dead, mistake);
  TrainingModel training(process, start, [&told](const Event& event) { told.take(event); });
  training.run();
  process.die();
  return {training.outcome, process.calls()};
}

// Whether the next start finds what was acknowledged, and says what to do where it may not take
// it; empty: so it is. Nobody lives any more.
inline std::string judge(const DiskModel& now, const Told& told, Mistake mistake = Mistake::kNone) {
  DiskModel disk(now);
  Told ignored;
  auto outcome = run_alone(disk, {.steps = 0}, ignored, all_is_well, mistake).first;
  const std::string asked = "--restore step-";
  if (const auto at = outcome.error.find(asked); told.begins_anew && at != std::string::npos) {
    // What has begun anew has saved nothing yet: the start says how to go on from before.
    const int step = std::stoi(outcome.error.substr(at + asked.size()));
    const Start again{.how = "step-" + std::to_string(step), .steps = 0};
    outcome = run_alone(disk, again, ignored, all_is_well, mistake).first;
  }
  if (outcome.error.empty() && outcome.restored &&
      (outcome.from == told.acknowledged || told.written.contains(outcome.from))) {
    return "";
  }
  return "restored " + std::to_string(outcome.from) + ", told " + told.shown() + ": " +
         outcome.error + "\n" + now.shown();
}

}  // namespace ronde::trainer
