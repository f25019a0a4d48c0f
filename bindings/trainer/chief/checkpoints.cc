// SPDX-License-Identifier: Apache-2.0
// What is kept, and the thread that writes.
#include "bindings/trainer/chief/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "bindings/trainer/chief/durable_files.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

const char* const kMetricOfBest = "checkpoints/best_metric";
const char* const kBestStep = "checkpoints/best_step";
const char* const kAside = "/replaced";
const char* const kWhatToDo =
    ": use another --logdir, or --restore never, which replaces what is there";

struct Best {
  double metric = 0.0;
  std::uint64_t step = 0;
};

// What is to be written, as it was when it was asked for.
struct Snapshot {
  CheckpointState state;
  std::string tensors;
  std::optional<double> metric;
};

std::string of_step(std::uint64_t step) { return "checkpoint of step " + std::to_string(step); }

// The directory, and what is known of it. Thread safety: belongs to one thread at a time.
class Store {
 public:
  Store(const CheckpointOptions& options, Say say) : options_(options), say_(std::move(say)) {
    options_.keep = std::max<std::size_t>(options_.keep, 1);
    try {
      make_directories(options_.directory);
    } catch (const DataError&) {
      return;  // the first save says so
    }
    lock_.emplace(options_.directory + "/lock");
    try {
      clean_up_checkpoints(options_.directory);
    } catch (const DataError& error) {
      say_(std::string("an unfinished checkpoint could not be removed: ") + error.what());
    }
  }

  // Whether it could be written.
  bool write(Snapshot& snapshot) {
    const std::uint64_t step = snapshot.state.global_step;
    std::optional<Best> best = best_;
    if (snapshot.metric.has_value() && std::isfinite(*snapshot.metric) &&
        (!best.has_value() || *snapshot.metric < best->metric)) {
      best = Best{*snapshot.metric, step};
    }
    if (best.has_value()) {
      snapshot.state.numbers[kMetricOfBest] = best->metric;
      snapshot.state.numbers[kBestStep] = static_cast<double>(best->step);
    }
    try {
      write_checkpoint(options_.directory, snapshot.state, snapshot.tensors);
    } catch (const std::exception& error) {
      say_(of_step(step) + " was not written: " + error.what() + "; " +
           (latest_.has_value() ? "the one of step " + std::to_string(*latest_) + " stays"
                                : "there is no earlier one") +
           "; training goes on");
      return false;
    }
    best_ = best;
    latest_ = step;
    damaged_.erase(step);
    remove_old();
    return true;
  }

  std::optional<CheckpointState> restore(Restore restore, const Flags& flags,
                                         const std::vector<StateTensor>& tensors) {
    best_.reset();
    latest_.reset();
    damaged_.clear();
    if (restore == Restore::kNever) {
      put_aside();
      return std::nullopt;
    }
    const std::vector<std::uint64_t> steps = list_checkpoints(options_.directory);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      std::optional<Checkpoint> checkpoint = read(*step);
      if (!checkpoint.has_value()) continue;
      const std::string path = checkpoint_path(options_.directory, *step);
      const std::string differing = flags_that_differ(checkpoint->state, flags);
      if (!differing.empty()) {
        throw TrainerError(path + " is of a training with other flags: " + differing + kWhatToDo);
      }
      copy_tensors(checkpoint->tensors, tensors, path);
      go_on_from(checkpoint->state);
      return std::move(checkpoint->state);
    }
    if (restore == Restore::kMust) {
      throw TrainerError("there is no whole checkpoint in " + options_.directory +
                         ", and --restore must asks for one: check --logdir");
    }
    return std::nullopt;
  }

 private:
  // None, and a line: it is damaged.
  std::optional<Checkpoint> read(std::uint64_t step) {
    try {
      return read_checkpoint(options_.directory, step);
    } catch (const DataError& error) {
      say_(of_step(step) + " is skipped: " + error.what());
      damaged_.insert(step);
      return std::nullopt;
    }
  }

  // The checkpoints of another training: nobody may go on from them any more, but they stay until
  // the first of this one is there.
  void put_aside() {
    const std::string aside = options_.directory + kAside;
    remove_path(aside);
    for (const std::uint64_t step : list_checkpoints(options_.directory)) {
      if (!std::exchange(has_put_aside_, true)) make_directories(aside);
      rename_path(checkpoint_path(options_.directory, step), checkpoint_path(aside, step));
    }
    if (has_put_aside_) sync_directory(options_.directory);
  }

  // Takes what this class has added out of the state.
  void go_on_from(CheckpointState& state) {
    latest_ = state.global_step;
    const auto metric = state.numbers.extract(kMetricOfBest);
    const auto step = state.numbers.extract(kBestStep);
    if (metric.empty() || step.empty()) return;
    best_ = Best{metric.mapped(), static_cast<std::uint64_t>(step.mapped())};
  }

  // All but the last few, the best, and those that were skipped: a newer Ronde may read them.
  void remove_old() {
    try {
      std::vector<std::uint64_t> steps = list_checkpoints(options_.directory);
      std::erase_if(steps, [this](std::uint64_t step) { return damaged_.contains(step); });
      steps.resize(steps.size() - std::min(options_.keep, steps.size()));
      for (const std::uint64_t step : steps) {
        if (step == latest_ || (best_.has_value() && step == best_->step)) continue;
        remove_checkpoint(options_.directory, step);
      }
      if (std::exchange(has_put_aside_, false)) remove_path(options_.directory + kAside);
    } catch (const DataError& error) {
      say_(std::string("an old checkpoint could not be removed: ") + error.what());
    }
  }

  CheckpointOptions options_;
  Say say_;
  std::optional<Best> best_;
  std::optional<std::uint64_t> latest_;  // what a restart would go on from
  std::set<std::uint64_t> damaged_;      // and were skipped
  bool has_put_aside_ = false;           // and not removed yet
  std::optional<FileLock> lock_;
};

}  // namespace

class Checkpoints::Writer {
 public:
  Writer(const CheckpointOptions& options, Say say)
      : store_(options, std::move(say)),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  // Waits until nothing is being written; the store is the caller's until the next write().
  Store& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !snapshot_.has_value(); });
    return store_;
  }

  // Copies the tensors and lets the thread write them.
  void write(const CheckpointState& state, const std::vector<StateTensor>& tensors,
             std::optional<double> metric) {
    wait();  // before the copy, so that there is one at a time
    std::vector<TensorView> views;
    views.reserve(tensors.size());
    for (const StateTensor& tensor : tensors) {
      views.push_back({tensor.name, tensor.shape, tensor.values});
    }
    Snapshot snapshot{state, to_safetensors(views, {}, std::move(memory_)), metric};
    const std::scoped_lock lock(mutex_);
    snapshot_ = std::move(snapshot);
    changed_.notify_all();
  }

  bool flush() {
    wait();
    return std::exchange(all_written_, true);
  }

 private:
  // A snapshot that is there when the end is asked for is still written.
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return snapshot_.has_value(); })) {
      lock.unlock();
      const bool written = store_.write(*snapshot_);
      lock.lock();
      all_written_ = all_written_ && written;
      memory_ = std::move(snapshot_->tensors);
      snapshot_.reset();
      changed_.notify_all();
    }
  }

  Store store_;  // the thread's while there is a snapshot
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Snapshot> snapshot_;
  std::string memory_;  // of the last one, for the next
  bool all_written_ = true;
  std::jthread thread_;  // the last member: it is joined before the others go
};

Checkpoints::Checkpoints(const CheckpointOptions& options, Say say)
    : writer_(std::make_unique<Writer>(options, std::move(say))) {}

Checkpoints::~Checkpoints() = default;

void Checkpoints::save(const CheckpointState& state, const std::vector<StateTensor>& tensors) {
  writer_->write(state, tensors, std::nullopt);
}

void Checkpoints::save_if_best(const CheckpointState& state,
                               const std::vector<StateTensor>& tensors, double metric) {
  writer_->write(state, tensors, metric);
}

bool Checkpoints::flush() { return writer_->flush(); }

std::optional<CheckpointState> Checkpoints::restore(Restore restore, const Flags& flags,
                                                    const std::vector<StateTensor>& tensors) {
  return writer_->wait().restore(restore, flags, tensors);
}

void copy_tensors(const LoadedTensors& from, const std::vector<StateTensor>& to,
                  const std::string& where) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const StateTensor& tensor : to) {
    known.insert(tensor.name);
    const auto found = from.find(tensor.name);
    if (found == from.end()) {
      differences.push_back(tensor.name + " is missing there");
    } else if (found->second.shape != tensor.shape ||
               found->second.values.size() != tensor.values.size()) {
      differences.push_back(tensor.name + " is " + text_of(found->second.shape) + " there and " +
                            text_of(tensor.shape) + " here");
    }
  }
  for (const auto& [name, tensor] : from) {
    if (!known.contains(name)) differences.push_back(name + " is missing here");
  }
  if (!differences.empty()) {
    constexpr std::size_t kMostNamed = 4;
    std::string text = where + " is of another model: ";
    for (std::size_t i = 0; i < std::min(kMostNamed, differences.size()); ++i) {
      text += (i == 0 ? "" : "; ") + differences[i];
    }
    if (differences.size() > kMostNamed) {
      text += "; and " + std::to_string(differences.size() - kMostNamed) + " more";
    }
    throw TrainerError(text + kWhatToDo);
  }
  for (const StateTensor& tensor : to) {
    const std::vector<float>& values = from.at(tensor.name).values;
    std::copy(values.begin(), values.end(), tensor.values.begin());
  }
}

}  // namespace ronde::trainer
