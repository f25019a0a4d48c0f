// SPDX-License-Identifier: Apache-2.0
// Polls for checkpoints, and scores them in order.
#include "bindings/trainer/keep/evaluator.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "bindings/trainer/keep/checkpoint_directory.h"
#include "bindings/trainer/keep/checkpoint_names.h"
#include "bindings/trainer/keep/logs.h"
#include "bindings/trainer/keep/stop_signals.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks(200);

class Evaluator {
 public:
  Evaluator(const EvaluatorOptions& options, const std::vector<StateTensor>& tensors,
            const std::function<Metrics()>& score)
      : options_(options),
        tensors_(tensors),
        score_(score),
        files_(*options.files),
        logs_(options.directory + "/eval"),
        owner_((make_directories(files_, logs_), files_), logs_) {
    for (const StateTensor& one : tensors) names_.insert(one.name);
  }

  // Returns how many it has scored.
  std::size_t run() {
    for (std::chrono::duration<double> idle{}; idle.count() < options_.idle_seconds;
         idle += kBetweenLooks) {
      const bool lives =
          shows_life();  // before listing the directory, so that the last step is not missed
      if (look() || lives) idle = {};
      if (!trains_ && record_.finished_step && seen_ && *seen_ >= *record_.finished_step) {
        say("the training has finished");
        return scored_;
      }
      if (signals_.stop_asked()) {
        throw TrainerError("the evaluator was told to stop, and ends: checkpoints scored: " +
                               std::to_string(scored_) + "; start it again for those that come",
                           kExitStopped);
      }
      files_.pause(kBetweenLooks);
    }
    say("neither a new checkpoint nor another sign of a training in " + options_.directory +
        " for " + std::to_string(static_cast<int>(options_.idle_seconds)) + " s");
    return scored_;
  }

 private:
  // Scores the new checkpoints; returns whether there were any.
  bool look() {
    owner_.beat();
    record_ = read_training_record(files_, options_.directory);
    follow(record_.training);
    bool found = false;
    for (const std::uint64_t step : CheckpointDirectory::steps(files_, options_.directory)) {
      if (seen_ && step <= *seen_) continue;
      const bool again = std::exchange(unread_, step) == step;
      try {
        if (!load(step)) continue;
      } catch (const DataError& error) {
        // It may be in the middle of being replaced by another of the same step: retry once.
        if (!again) break;
        // It is damaged, or the training has removed it in the meantime.
        say("checkpoint skipped: " + std::string(error.what()));
        seen_ = step;
        continue;
      }
      seen_ = step;
      found = true;
      write(step, score_());
      ++scored_;
    }
    return found;
  }

  // Whether a training has shown a heartbeat there since the last call.
  bool shows_life() {
    std::string sign;
    try {
      sign = Owner::sign_of_life(files_, options_.directory);
    } catch (const DataError&) {  // NOLINT(bugprone-empty-catch): there is no such directory yet
    }
    trains_ = !sign.empty();
    return std::exchange(sign_, sign) != sign && trains_;
  }
  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  // Resumes after the last step of an earlier evaluator of the same training.
  void follow(const std::string& training) {
    if (training_ == training) return;
    const std::string file = logs_ + "/training";
    try {
      anew_ = read_file(files_, file) != training;
    } catch (const FileError&) {
      anew_ = !training.empty();
    }
    seen_ = anew_ ? std::nullopt : MetricLog::last_step(logs_ + "/metrics.jsonl");
    replace_file(files_, file, training);
    training_ = training;
    log_.reset();
  }

  // Returns false for a checkpoint of another training.
  bool load(std::uint64_t step) {
    const std::string folder = checkpoint_path(options_.directory, step);
    if (read_checkpoint_state(files_, folder).training != training_) return false;
    Checkpoint checkpoint = read_checkpoint(files_, folder);
    std::erase_if(checkpoint.tensors, [&](const auto& one) { return !names_.contains(one.first); });
    copy_tensors(checkpoint.tensors, tensors_, folder);
    return true;
  }

  void write(std::uint64_t step, const Metrics& metrics) {
    if (!log_) log_.emplace(logs_, step, std::exchange(anew_, false));
    log_->write(step,
                {{"evaluation/loss", metrics.loss()}, {"evaluation/accuracy", metrics.accuracy()}});
    say("step " + std::to_string(step) + ": loss " + std::to_string(metrics.loss()) +
        ", accuracy " + std::to_string(metrics.accuracy()));
  }

  const EvaluatorOptions& options_;
  const std::vector<StateTensor>& tensors_;
  const std::function<Metrics()>& score_;
  const StopSignals signals_{};
  FileSystem& files_;
  const std::string logs_;
  Owner owner_;
  std::set<std::string> names_;
  std::optional<TrainingLogs> log_;
  TrainingRecord record_;
  std::optional<std::string> training_;
  bool anew_ = false;                    // not the training of the earlier evaluator
  std::optional<std::uint64_t> seen_;    // the last step that was scored or skipped
  std::optional<std::uint64_t> unread_;  // the last one that could not be read
  std::string sign_;
  bool trains_ = false;
  std::size_t scored_ = 0;
};

}  // namespace

std::size_t evaluate_checkpoints(const EvaluatorOptions& options,
                                 const std::vector<StateTensor>& tensors,
                                 const std::function<Metrics()>& score) {
  return Evaluator(options, tensors, score).run();
}

}  // namespace ronde::trainer
