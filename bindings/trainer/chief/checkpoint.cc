// SPDX-License-Identifier: Apache-2.0
// The files of one checkpoint, and the order in which they are written.
#include "bindings/trainer/chief/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "bindings/trainer/chief/checksums.h"
#include "bindings/trainer/chief/durable_files.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

const char* const kStepPrefix = "step-";
const char* const kUnfinished = ".tmp";    // what is being written or removed
const char* const kReplaced = ".old.tmp";  // what another of the same step replaces
const char* const kTensorsFile = "/tensors.safetensors";
const char* const kStateFile = "/state.json";

// The step of "step-<step><ending>".
std::optional<std::uint64_t> step_of(std::string_view name, std::string_view ending) {
  if (!name.starts_with(kStepPrefix) || !name.ends_with(ending)) return std::nullopt;
  std::uint64_t step = 0;
  const auto digits = name.substr(std::string_view(kStepPrefix).size());
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (name != kStepPrefix + std::to_string(step) + std::string(ending)) return std::nullopt;
  return step;
}

// The steps with such an entry, ascending.
std::vector<std::uint64_t> steps_with(const std::string& directory, const std::string& ending) {
  std::vector<std::uint64_t> steps;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const auto step = step_of(entry->path().filename().native(), ending);
    if (step.has_value()) steps.push_back(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw DataError(directory + ": " + error.message());
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool entry_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

// `directory` has a whole `path`.tmp, and gets it as `path`.
void put_in_place(const std::string& directory, const std::string& path) {
  const bool replaces = entry_exists(path);
  if (replaces) {
    remove_path(path + kReplaced);
    rename_path(path, path + kReplaced);
  }
  try {
    rename_path(path + kUnfinished, path);
  } catch (const DataError&) {
    if (replaces) rename_path(path + kReplaced, path);
    throw;
  }
  sync_directory(directory);
}

}  // namespace

void write_checkpoint(const std::string& directory, const CheckpointState& state,
                      const std::string& tensors) {
  const std::string path = checkpoint_path(directory, state.global_step);
  const std::string unfinished = path + kUnfinished;
  std::error_code ignored;
  try {
    make_directories(directory);
    remove_path(unfinished);
    make_directories(unfinished);
    write_file(unfinished + kTensorsFile, tensors);
    write_file(unfinished + kStateFile, to_state_json(state, checksum_text(tensors)));
    sync_directory(unfinished);
    put_in_place(directory, path);
  } catch (...) {
    std::filesystem::remove_all(unfinished, ignored);  // the first error is the one to tell
    throw;
  }
  std::filesystem::remove_all(path + kReplaced, ignored);
}

CheckpointState read_checkpoint_state(const std::string& directory, std::uint64_t global_step) {
  const std::string file = checkpoint_path(directory, global_step) + kStateFile;
  return from_state_json(read_file(file), file).first;
}

Checkpoint read_checkpoint(const std::string& directory, std::uint64_t global_step) {
  const std::string path = checkpoint_path(directory, global_step);
  const std::string state_file = path + kStateFile;
  const std::string tensors_file = path + kTensorsFile;
  auto [state, expected] = from_state_json(read_file(state_file), state_file);
  if (state.global_step != global_step) {
    throw DataError(state_file + ": it is of step " + std::to_string(state.global_step) +
                    ": the directory was renamed");
  }
  const std::string bytes = read_file(tensors_file);
  if (const std::string found = checksum_text(bytes); found != expected) {
    throw DataError(tensors_file + ": its checksum is " + found + ", state.json says " + expected +
                    ": it is truncated or damaged");
  }
  return {std::move(state), from_safetensors(bytes, tensors_file)};
}

std::vector<std::uint64_t> list_checkpoints(const std::string& directory) {
  return steps_with(directory, "");
}

std::string checkpoint_path(const std::string& directory, std::uint64_t global_step) {
  return directory + "/" + kStepPrefix + std::to_string(global_step);
}

void remove_checkpoint(const std::string& directory, std::uint64_t global_step) {
  const std::string path = checkpoint_path(directory, global_step);
  remove_path(path + kUnfinished);
  rename_path(path, path + kUnfinished);
  remove_path(path + kUnfinished);
}

void clean_up_checkpoints(const std::string& directory) {
  for (const std::uint64_t step : steps_with(directory, kReplaced)) {
    const std::string path = checkpoint_path(directory, step);
    if (entry_exists(path)) {
      remove_path(path + kReplaced);
    } else {
      rename_path(path + kReplaced, path);
    }
  }
  for (const std::uint64_t step : steps_with(directory, kUnfinished)) {
    remove_path(checkpoint_path(directory, step) + kUnfinished);
  }
}

}  // namespace ronde::trainer
