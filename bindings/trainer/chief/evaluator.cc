// SPDX-License-Identifier: Apache-2.0
// Waiting for checkpoints, and scoring them in order.
#include "bindings/trainer/chief/evaluator.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "bindings/trainer/chief/event_writer.h"
#include "bindings/trainer/chief/finished.h"
#include "bindings/trainer/chief/metric_log.h"
#include "bindings/trainer/loop/progress.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks(200);
constexpr const char* kLog = "/metrics.jsonl";

class Evaluator {
 public:
  Evaluator(const EvaluatorOptions& options, const std::vector<StateTensor>& tensors,
            const std::function<Metrics()>& score)
      : options_(options), tensors_(tensors), score_(score) {
    for (const StateTensor& one : tensors) names_.insert(one.name);
    // An evaluator that is started again goes on where the one before has ended.
    seen_ = MetricLog::last_step(directory() + kLog);
  }

  // Scores what is new; whether anything was.
  bool look() {
    const auto steps = list_checkpoints(options_.directory);
    if (seen_ && !steps.empty() && steps.back() < *seen_) {
      seen_.reset();  // the training has begun anew
      events_.reset();
    }
    bool found = false;
    for (const std::uint64_t step : steps) {
      if (seen_ && step <= *seen_) continue;
      const bool again = std::exchange(damaged_, step) == step;
      try {
        load(step);
      } catch (const DataError& error) {
        // It may just be replaced by another one of the same step, so it is looked at once more.
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

  [[nodiscard]] bool is_final() const {
    const auto finished = read_finished(options_.directory);
    return finished && seen_ && *seen_ >= finished->global_step;
  }
  [[nodiscard]] std::size_t scored() const noexcept { return scored_; }

 private:
  void load(std::uint64_t step) {
    Checkpoint checkpoint = read_checkpoint(options_.directory, step);
    const std::string where = checkpoint_path(options_.directory, step);
    std::erase_if(checkpoint.tensors, [&](const auto& one) { return !names_.contains(one.first); });
    copy_tensors(checkpoint.tensors, tensors_, where);
  }

  void write(std::uint64_t step, const Metrics& metrics) {
    if (!events_) {
      events_ = std::make_unique<EventWriter>(directory(), step);
      log_ = std::make_unique<MetricLog>(directory() + kLog, step);
    }
    const std::map<std::string, double> values{{"evaluation/loss", metrics.loss()},
                                               {"evaluation/accuracy", metrics.accuracy()}};
    for (const auto& [tag, value] : values) events_->scalar(tag, step, value);
    events_->flush();
    log_->write(step, values);
    say("step " + std::to_string(step) + ": loss " + std::to_string(metrics.loss()) +
        ", accuracy " + std::to_string(metrics.accuracy()));
  }

  [[nodiscard]] std::string directory() const { return options_.directory + "/eval"; }

  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  const EvaluatorOptions& options_;
  const std::vector<StateTensor>& tensors_;
  const std::function<Metrics()>& score_;
  std::set<std::string> names_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<MetricLog> log_;
  std::optional<std::uint64_t> seen_;     // the last step that is done with
  std::optional<std::uint64_t> damaged_;  // the last one that was looked at
  std::size_t scored_ = 0;
};

}  // namespace

std::size_t evaluate_checkpoints(const EvaluatorOptions& options,
                                 const std::vector<StateTensor>& tensors,
                                 const std::function<Metrics()>& score) {
  Evaluator evaluator(options, tensors, score);
  double last = steady_seconds();
  while (!evaluator.is_final() && steady_seconds() - last < options.idle_seconds) {
    if (evaluator.look()) {
      last = steady_seconds();
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return evaluator.scored();
}

}  // namespace ronde::trainer
