// SPDX-License-Identifier: Apache-2.0
// ronde-checkpoint: what lies in a training's directory, whether it is whole, and its parameters
// alone, as a safetensors file that other programs load.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ronde/ronde.hpp>
#include <string>
#include <vector>

#include "bindings/trainer/fit/program/program.h"
#include "bindings/trainer/keep/checkpoint_directory.h"
#include "bindings/trainer/keep/checkpoint_names.h"

namespace ronde::examples {
namespace {

using trainer::Checkpoint;
using trainer::CheckpointDirectory;
using trainer::disk;

// As help2man reads it, too.
constexpr const char* kHelp =
    R"(Usage: ronde-checkpoint list DIRECTORY
  or:  ronde-checkpoint verify PATH
  or:  ronde-checkpoint export PATH FILE

Says which checkpoints a training has left in its directory and whether they are whole, and takes
the parameters out of them.

  list       the checkpoints of a directory, oldest first
  verify     reads one, or all of a directory: exit code 1 where any is damaged
  export     writes the parameters of one, or of a directory's newest, into a safetensors file,
             without the optimiser's moments
  --version  print the version and stop
  --help     print this text and stop
)";

std::string path_of(const std::string& directory, std::uint64_t step) {
  return trainer::checkpoint_path(directory, step);
}

// One checkpoint, or those of a training's directory.
std::vector<std::string> checkpoints_at(const std::string& path) {
  const auto names = trainer::names_in(disk(), path);
  if (std::ranges::find(names, "state.json") != names.end()) return {path};
  std::vector<std::string> checkpoints;
  for (const std::uint64_t step : CheckpointDirectory::steps(disk(), path)) {
    checkpoints.push_back(path_of(path, step));
  }
  if (checkpoints.empty()) throw trainer::DataError(path + ": there is no checkpoint");
  return checkpoints;
}

int list(const std::string& directory) {
  const auto record = trainer::read_training_record(disk(), directory);
  for (const std::string& path : checkpoints_at(directory)) {
    try {
      const auto state = trainer::read_checkpoint_state(disk(), path);
      const auto best = state.numbers.find(trainer::kBestStep);
      const bool is_best =
          best != state.numbers.end() && best->second == static_cast<double>(state.global_step);
      std::printf("%s\tepoch %s, step %s of it\t%s%s\n", path.c_str(),
                  std::to_string(state.epoch + 1).c_str(),
                  std::to_string(state.step_in_epoch).c_str(),
                  state.training == record.training ? "" : "of an earlier training ",
                  is_best ? "the best so far" : "");
    } catch (const trainer::DataError& error) {
      std::printf("%s\t%s\n", path.c_str(), error.what());
    }
  }
  if (record.finished_step) {
    std::printf("finished at step %s: %s\n", std::to_string(*record.finished_step).c_str(),
                record.result.c_str());
  }
  return 0;
}

int verify(const std::string& path) {
  int code = 0;
  for (const std::string& one : checkpoints_at(path)) {
    try {
      const Checkpoint checkpoint = trainer::read_checkpoint(disk(), one);
      std::printf("%s is whole: %zu tensors, %zu bytes\n", one.c_str(), checkpoint.tensors.size(),
                  checkpoint.bytes->size());
    } catch (const trainer::DataError& error) {
      std::printf("%s\n", error.what());
      code = trainer::kExitFailure;
    }
  }
  return code;
}

// The checkpoint in a directory that the next start would go on from, if there is such a one; else
// the newest.
std::string newest_at(const std::string& path) {
  const auto checkpoints = checkpoints_at(path);
  if (checkpoints.front() == path) return path;
  const auto record = trainer::read_training_record(disk(), path);
  for (auto one = checkpoints.rbegin(); one != checkpoints.rend(); ++one) {
    if (trainer::read_checkpoint_state(disk(), *one).training == record.training) return *one;
  }
  return checkpoints.back();
}

int export_parameters(const std::string& path, const std::string& file) {
  const std::string from = newest_at(path);
  const Checkpoint checkpoint = trainer::read_checkpoint(disk(), from);
  const auto& moments = checkpoint.state.moments;
  std::vector<std::vector<float>> values;  // aligned, unlike a file's bytes
  std::vector<trainer::StateTensor> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (std::ranges::find(moments, name) != moments.end()) continue;
    values.emplace_back(tensor.bytes.size() / sizeof(float));
    if (!tensor.bytes.empty()) {
      std::memcpy(values.back().data(), tensor.bytes.data(), tensor.bytes.size());
    }
    tensors.push_back({name, tensor.shape, values.back()});
  }
  const std::string step = std::to_string(checkpoint.state.global_step);
  trainer::replace_file(disk(), file, trainer::to_safetensors(tensors, {{"step", step}}));
  std::printf("%s: %zu tensors of %s\n", file.c_str(), tensors.size(), from.c_str());
  return 0;
}

int run(const std::vector<std::string>& words) {
  const std::string first = words.empty() ? "" : words[0];
  if (words.size() == 1 && (first == "--help" || first == "--version")) {
    const std::string version = std::string("ronde-checkpoint ") + ronde_version() + "\n";
    std::fputs(first == "--help" ? kHelp : version.c_str(), stdout);
    return 0;
  }
  if (words.size() == 2 && first == "list") return list(words[1]);
  if (words.size() == 2 && first == "verify") return verify(words[1]);
  if (words.size() == 3 && first == "export") return export_parameters(words[1], words[2]);
  throw trainer::UsageError(
      "it takes list DIRECTORY, verify PATH or export PATH FILE: see ronde-checkpoint --help");
}

}  // namespace
}  // namespace ronde::examples

int main(int argc, char** argv) {
  return ronde::trainer::report_errors(
      "ronde-checkpoint", [&] { return ronde::examples::run({argv + 1, argv + argc}); });
}
