// SPDX-License-Identifier: Apache-2.0
// The rules of checkpoint_directory.h, in the order of system calls.
#include "bindings/trainer/keep/checkpoint_directory.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "bindings/trainer/keep/checkpoint_names.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

constexpr const char* kMetricOfBest = "checkpoints/best_metric";

std::string of_step(std::uint64_t step) { return "checkpoint of step " + std::to_string(step); }

void make_logdir(FileSystem& files, const std::string& directory) {
  try {
    make_directories(files, directory);
  } catch (const FileError& error) {
    if (error.is_full()) throw;
    throw DataError(std::string(error.what()) + ": name a --logdir that can be made");
  }
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(FileSystem& files, const std::string& directory,
                                         std::size_t keep, PrintLine say,
                                         const OwnerPatience& patience)
    : files_(files),
      directory_(directory),
      keep_(std::max<std::size_t>(keep, 1)),
      say_(std::move(say)),
      owner_((make_logdir(files, directory), files), directory, patience) {
  if (!owner_.locked()) {
    say_(directory + " is on a file system without locks: owner-" + std::to_string(owner_.term()) +
         " keeps other trainings out");
  }
  record_ = read_training_record(files_, directory_);
  take_stock();
}

// Cleans up after an owner that was killed: restores a checkpoint that was being replaced, and
// lists the others.
void CheckpointDirectory::take_stock() {
  const std::vector<CheckpointName> names = checkpoint_names_in(files_, directory_);
  std::set<std::uint64_t> whole;
  for (const auto& [step, ending] : names) {
    if (ending.empty()) whole.insert(step);
    if (ending == kDamagedEnding) damaged_.insert(step);
  }
  for (const auto& [step, ending] : names) {
    if (!ending.ends_with(kUnfinishedEnding)) continue;
    if (ending.ends_with(kReplacedEnding) && whole.insert(step).second) {
      rename_path(files_, folder(step) + ending, folder(step));
    } else {
      remove_folder(folder(step) + ending, step);
    }
  }
  for (const std::uint64_t step : whole) {
    Found& found = found_[step];
    try {
      found.state = read_checkpoint_state(files_, folder(step));
      if (found.state.global_step == step) continue;
      throw Damaged(folder(step) + ": it is of step " + std::to_string(found.state.global_step) +
                    ": the directory was renamed");
    } catch (const DataError&) {
      found.trouble = std::current_exception();
    }
  }
}

std::optional<CheckpointState> CheckpointDirectory::restore(
    const RestoreOptions& options, const std::vector<StateTensor>& tensors) {
  const std::string& how = options.how;
  const bool again = !options.job.empty() && options.job == record_.job;
  const bool may_begin = how == "never" || (how == "auto" && found_.empty());
  if (how == "auto" || how == "must" || again) {
    if (auto state = newest(options, tensors)) return state;
  }
  if (how == "must" || (how == "auto" && !may_begin)) {
    throw TrainerError(
        found_.empty()
            ? "there is no checkpoint in " + directory_ +
                  ", and --restore must asks for one: check --logdir"
            : "the checkpoints in " + directory_ +
                  " are of an earlier training, and the one that was begun after it has saved "
                  "nothing: use --restore step-" +
                  std::to_string(found_.rbegin()->first) + " to go on from the earlier one, or " +
                  "--restore never to begin anew",
        kExitConfiguration);
  }
  if (how == "never") begin_training(options.job);
  if (may_begin) return std::nullopt;
  return chosen(options, tensors);
}

// Rule 5.
std::optional<CheckpointState> CheckpointDirectory::newest(
    const RestoreOptions& options, const std::vector<StateTensor>& tensors) {
  std::vector<std::uint64_t> passed;
  for (auto one = found_.rbegin(); one != found_.rend(); ++one) {
    const auto& [step, found] = *one;
    if (!found.trouble && !counts(found)) continue;
    try {
      CheckpointState state = go_on_from(step, options, tensors);
      for (const std::uint64_t damaged : passed) {
        if (files_.rename(folder(damaged), folder(damaged) + std::string(kDamagedEnding)) < 0)
          continue;
        found_.erase(damaged);
        damaged_.insert(damaged);
      }
      return state;
    } catch (const Damaged& error) {
      say_(of_step(step) + " is skipped: " + error.what());
      passed.push_back(step);
    }
  }
  if (passed.empty()) return std::nullopt;
  throw TrainerError("no checkpoint in " + directory_ +
                         " is whole: mend one, or use --restore never to begin anew",
                     kExitConfiguration);
}

// best, step-N or a path.
CheckpointState CheckpointDirectory::chosen(const RestoreOptions& options,
                                            const std::vector<StateTensor>& tensors) {
  std::optional<std::uint64_t> step;
  std::string path = options.how;
  if (const auto name = parse_checkpoint_name(options.how); name && name->ending.empty())
    step = name->step;
  const auto newest = std::find_if(found_.rbegin(), found_.rend(),
                                   [this](const auto& one) { return counts(one.second); });
  if (options.how == "best" && newest != found_.rend()) {
    const auto& numbers = newest->second.state.numbers;
    if (const auto best = numbers.find(kBestStep); best != numbers.end()) {
      step = static_cast<std::uint64_t>(best->second);
    }
  }
  if (step) path = folder(*step);
  if (step ? !found_.contains(*step) : path.find('/') == std::string::npos) {
    std::string there;
    for (const auto& [other, found] : found_) there += " step-" + std::to_string(other);
    throw TrainerError("--restore " + options.how + ": there is no such checkpoint in " +
                           directory_ + (there.empty() ? ", nor any other" : "; there are" + there),
                       kExitConfiguration);
  }
  if (step && newest != found_.rend() && *step == newest->first) {
    return go_on_from(*step, options, tensors);
  }
  CheckpointState state = adopt(path, options, tensors);
  begin_training(options.job);
  return state;
}

CheckpointState CheckpointDirectory::go_on_from(std::uint64_t step, const RestoreOptions& options,
                                                const std::vector<StateTensor>& tensors) {
  if (const auto& trouble = found_.at(step).trouble) std::rethrow_exception(trouble);
  CheckpointState state = adopt(folder(step), options, tensors);
  newest_ = step;
  return state;
}

// Reads a checkpoint, and copies its tensors if the training is the same.
CheckpointState CheckpointDirectory::adopt(const std::string& folder, const RestoreOptions& options,
                                           const std::vector<StateTensor>& tensors) {
  Checkpoint checkpoint = read_checkpoint(files_, folder);
  CheckpointState& state = checkpoint.state;
  const std::string differing = flags_that_differ(state, options.flags);
  if (!differing.empty() && !options.accept_changes) {
    throw TrainerError(folder + " is of a training with other flags: " + differing +
                           kInsteadOfGoingOn + ", or --accept-changes on, which goes on",
                       kExitConfiguration);
  }
  copy_tensors(checkpoint.tensors, tensors, folder);
  if (!differing.empty()) say_("this is another training from here on: " + differing);
  const auto metric = state.numbers.extract(kMetricOfBest);
  const auto step = state.numbers.extract(kBestStep);
  if (!metric.empty() && !step.empty()) {
    best_ = Best{metric.mapped(), static_cast<std::uint64_t>(step.mapped())};
  }
  return std::move(state);
}

// Rule 3: none of the existing ones is valid any more.
void CheckpointDirectory::begin_training(const std::string& job) {
  record_ = {.training = std::to_string(files_.random()),
             .job = job,
             .finished_step = {},
             .goal = {},
             .result = {}};
  newest_.reset();
  best_.reset();
  write_training_record(files_, directory_, record_);
}

void CheckpointDirectory::set_finished(std::optional<std::uint64_t> step, const std::string& goal,
                                       const std::string& result) {
  if (!step && !record_.finished_step) return;
  record_.finished_step = step;
  record_.goal = goal;
  record_.result = result;
  write_training_record(files_, directory_, record_);
}

std::vector<std::uint64_t> CheckpointDirectory::steps(FileSystem& files,
                                                      const std::string& directory) {
  std::vector<std::uint64_t> steps;
  try {
    for (const auto& [step, ending] : checkpoint_names_in(files, directory)) {
      if (ending.empty()) steps.push_back(step);
    }
  } catch (const FileError& error) {
    if (error.number() != ENOENT) throw;
  }
  std::ranges::sort(steps);
  return steps;
}

bool CheckpointDirectory::write(Snapshot& snapshot) {
  CheckpointState& state = snapshot.state;
  const std::uint64_t step = state.global_step;
  std::optional<Best> best = best_;
  if (snapshot.metric && std::isfinite(*snapshot.metric) &&
      (!best || *snapshot.metric < best->metric)) {
    best = Best{*snapshot.metric, step};
  }
  if (best) {
    state.numbers[kMetricOfBest] = best->metric;
    state.numbers[kBestStep] = static_cast<double>(best->step);
  }
  state.training = record_.training;
  for (bool written = false; !written;) {
    try {
      put(snapshot);
      written = true;
    } catch (const std::exception& error) {
      const auto* const refused = dynamic_cast<const FileError*>(&error);
      if (refused != nullptr && refused->is_full() && make_room(step)) continue;
      say_(of_step(step) + " was not written: " + error.what() + "; " +
           (newest_ ? "the one of step " + std::to_string(*newest_) + " stays"
                    : "there is no earlier one"));
      return false;
    }
  }
  best_ = best;
  newest_ = step;
  remove_old();
  return true;
}

std::optional<double> CheckpointDirectory::best() const {
  return best_ ? std::optional(best_->metric) : std::nullopt;
}

// Rule 1.
void CheckpointDirectory::put(const Snapshot& snapshot) {
  const std::uint64_t step = snapshot.state.global_step;
  const std::string unfinished = working_name(step) + std::string(kUnfinishedEnding);
  const auto require_owner = [this] {
    if (owner_.holds()) return;
    throw DataError(directory_ + " was taken over by another training, or moved away");
  };
  require_owner();
  try {
    remove_path(files_, unfinished);
    write_checkpoint(files_, unfinished, snapshot.state, snapshot.tensors);
    put_in_place(unfinished, folder(step));
  } catch (...) {
    try {
      remove_path(files_, unfinished);
    } catch (const DataError&) {  // NOLINT(bugprone-empty-catch): the first error is told
    }
    throw;
  }
  found_[step] = {snapshot.state};
  if (!sync_directory(files_, directory_) && !std::exchange(warned_of_sync_, true)) {
    say_(directory_ +
         " cannot be synced: after a power cut the newest checkpoints may be missing there");
  }
  require_owner();
  remove_path(files_, working_name(step) + std::string(kReplacedEnding));
}

// Rule 2.
void CheckpointDirectory::put_in_place(const std::string& unfinished, const std::string& folder) {
  const int result = files_.rename(unfinished, folder);
  if (result >= 0) return;
  if (result != -ENOTEMPTY && result != -EEXIST) throw FileError(folder, -result);
  const std::string replaced = unfinished.substr(0, unfinished.size() - kUnfinishedEnding.size()) +
                               std::string(kReplacedEnding);
  remove_path(files_, replaced);
  rename_path(files_, folder, replaced);
  try {
    rename_path(files_, unfinished, folder);
  } catch (const DataError&) {
    rename_path(files_, replaced, folder);
    throw;
  }
}

// Rule 6. Returns whether anything could be removed.
bool CheckpointDirectory::make_room(std::uint64_t for_step) {
  const auto say_so = [&](std::uint64_t step) {
    say_("the disk is full: the " + of_step(step) + " is removed to make room for that of step " +
         std::to_string(for_step));
  };
  try {
    if (!damaged_.empty()) {
      const std::uint64_t step = *damaged_.begin();
      say_so(step);
      remove_damaged(step + 1);
      return true;
    }
    for (const auto& [step, found] : found_) {
      if (stays(step) || step == for_step || found.trouble) continue;
      if (!counts(found) && !newest_) continue;
      say_so(step);
      remove(step);
      return true;
    }
  } catch (const DataError& error) {
    say_(std::string("an old checkpoint could not be removed: ") + error.what());
  }
  return false;
}

// Removes valid checkpoints that are too old, and those of a training that this one has replaced.
// Keeps checkpoints that cannot be read.
void CheckpointDirectory::remove_old() {
  try {
    auto ours = static_cast<std::size_t>(
        std::ranges::count_if(found_, [this](const auto& one) { return counts(one.second); }));
    for (auto one = found_.begin(); one != found_.end();) {
      const auto& [step, found] = *one++;
      if (found.trouble || (counts(found) && ours-- <= keep_) || stays(step)) continue;
      remove(step);
    }
    // It can be repaired by hand for as long as a complete one of its age would be kept.
    const auto oldest =
        std::ranges::find_if(found_, [this](const auto& one) { return counts(one.second); });
    if (oldest != found_.end()) remove_damaged(oldest->first);
  } catch (const DataError& error) {
    say_(std::string("an old checkpoint could not be removed: ") + error.what());
  }
}

void CheckpointDirectory::remove(std::uint64_t step) {
  remove_folder(folder(step), step);
  found_.erase(step);
}

// Renames it to one of our temporary names first, so that a half-removed one never looks complete,
// and a former owner that was presumed dead cannot put it back.
void CheckpointDirectory::remove_folder(const std::string& path, std::uint64_t step) {
  const std::string ours = working_name(step) + std::string(kUnfinishedEnding);
  remove_path(files_, ours);
  if (const int result = files_.rename(path, ours); result < 0 && result != -ENOENT) {
    throw FileError(path, -result);
  }
  remove_path(files_, ours);
}

void CheckpointDirectory::remove_damaged(std::uint64_t below) {
  while (!damaged_.empty() && *damaged_.begin() < below) {
    remove_path(files_, folder(*damaged_.begin()) + std::string(kDamagedEnding));
    damaged_.erase(damaged_.begin());
  }
}

bool CheckpointDirectory::counts(const Found& found) const {
  return !found.trouble && found.state.training == record_.training;
}

bool CheckpointDirectory::stays(std::uint64_t step) const {
  return step == newest_ || (best_ && step == best_->step);
}

std::string CheckpointDirectory::folder(std::uint64_t step) const {
  return checkpoint_path(directory_, step);
}

std::string CheckpointDirectory::working_name(std::uint64_t step) const {
  return folder(step) + '.' + std::to_string(owner_.term());
}

}  // namespace ronde::trainer
