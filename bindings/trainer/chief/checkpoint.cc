// SPDX-License-Identifier: Apache-2.0
// The files of one checkpoint.
#include "bindings/trainer/chief/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "bindings/trainer/chief/checksums.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

const char* const kTensorsFile = "/tensors.safetensors";
const char* const kStateFile = "/state.json";

// A folder gets its name once both files are in it.
std::string read_part(FileSystem& files, const std::string& file) {
  try {
    return read_file(files, file);
  } catch (const FileError& error) {
    if (error.number() == ENOENT || error.number() == ENOTDIR) throw Damaged(error.what());
    throw;
  }
}

std::pair<CheckpointState, std::string> read_state(FileSystem& files, const std::string& folder) {
  return from_state_json(read_part(files, folder + kStateFile), folder + kStateFile);
}

}  // namespace

void write_checkpoint(FileSystem& files, const std::string& folder, const CheckpointState& state,
                      const std::string& tensors) {
  if (const int made = files.make_directory(folder); made < 0) throw FileError(folder, -made);
  write_file(files, folder + kTensorsFile, tensors);
  write_file(files, folder + kStateFile, to_state_json(state, checksum_text(tensors)));
  sync_directory(files, folder);
}

CheckpointState read_checkpoint_state(FileSystem& files, const std::string& folder) {
  return read_state(files, folder).first;
}

Checkpoint read_checkpoint(FileSystem& files, const std::string& folder) {
  const std::string file = folder + kTensorsFile;
  auto [state, expected] = read_state(files, folder);
  const auto bytes = std::make_shared<const std::string>(read_part(files, file));
  if (const std::string found = checksum_text(*bytes); found != expected) {
    throw Damaged(file + ": its checksum is " + found + ", state.json says " + expected +
                  ": it is truncated or damaged");
  }
  return {std::move(state), bytes, from_safetensors(*bytes, file)};
}

void copy_tensors(const TensorsInBytes& from, const std::vector<StateTensor>& to,
                  const std::string& where) {
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const StateTensor& tensor : to) {
    known.insert(tensor.name);
    const auto found = from.find(tensor.name);
    if (found == from.end()) {
      differences.push_back(tensor.name + " is missing there");
    } else if (found->second.shape != tensor.shape ||
               found->second.bytes.size() != tensor.values.size_bytes()) {
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
    throw TrainerError(text + kInsteadOfGoingOn, kExitConfiguration);
  }
  for (const StateTensor& tensor : to) {
    const std::string_view bytes = from.at(tensor.name).bytes;
    if (!bytes.empty()) std::memcpy(tensor.values.data(), bytes.data(), bytes.size());
  }
}

}  // namespace ronde::trainer
