// SPDX-License-Identifier: Apache-2.0
// The rules between flags, apart from the parser of each flag (command_line.cc).
#include "examples/perf/options/flag_rules.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ronde::perf {

namespace {

void check_files(const Options& options) {
  if (options.json == "-" && options.csv == "-") {
    throw UsageError("--json - and --csv - cannot share standard output: name a file for one");
  }
  if (options.svg == "-") throw UsageError("--svg - is not valid: use the name of a file");
  std::vector<std::pair<std::string, std::filesystem::path>> files;
  for (const auto& [flag, name] : {std::pair<std::string, std::string>{"--json", options.json},
                                   {"--csv", options.csv},
                                   {"--svg", options.svg}}) {
    if (name.empty()) continue;
    const std::filesystem::path place = std::filesystem::absolute(name).lexically_normal();
    for (const auto& [other, taken] : files) {
      if (taken == place) {
        throw UsageError(other + " and " + flag + " both write " + name +
                         ": give each a file of its own");
      }
    }
    files.emplace_back(flag, place);
  }
}

// Refuses what works on host memory alone.
void check_device(const Options& options) {
  if (options.device == "cpu") return;
  for (const std::string& each : options.against) {
    if (each == "memcpy") continue;
    throw UsageError("--against " + each + " works in host memory: with --device " +
                     options.device + " use memcpy, or leave it out");
  }
  if (options.prepared) {
    throw UsageError("--prepared 1 is for host memory: leave it out with --device " +
                     options.device);
  }
  if (options.on_board) {
    throw UsageError("--buffer 1 is host memory: leave it out with --device " + options.device);
  }
  if (row_of(options.operation).reduces != 0 && options.dtypes.size() == 1 &&
      options.ops.size() == 1 && !valid_on_gpu(*options.dtypes[0], *options.ops[0])) {
    throw UsageError("--op " + std::string(options.ops[0]->name) + " of --datatype " +
                     std::string(options.dtypes[0]->name) +
                     " cannot be done on a GPU: use sum, prod, min, max or avg, and neither bool "
                     "nor integers of 16 bits");
  }
}

}  // namespace

void check_together(const Options& options) {
  check_files(options);
  check_device(options);
  const ronde_operation& row = row_of(options.operation);
  if (!options.svg.empty() && row.input == RONDE_NOTHING) {
    throw UsageError("--svg draws sizes or models: leave it out with --operation barrier");
  }
  if (!options.svg.empty() &&
      (options.dtypes.size() > 1 || (row.reduces != 0 && options.ops.size() > 1))) {
    throw UsageError("--svg draws one --datatype and one --op: name one of each");
  }
  if (row.output == RONDE_BLOCKS && !options.out_of_place) {
    throw UsageError("--place in is not valid with --operation " +
                     std::string(name_of(options.operation)) +
                     ", whose result has memory of its own: use --place out");
  }
  if (options.baseline.empty()) return;
  if (options.against.empty() && options.model.empty()) {
    throw UsageError("--baseline compares ratios: add --against mpi,mpi-best,memcpy or --model");
  }
  if (options.repetitions < kBaselineRepetitions) {
    throw UsageError("--repetitions " + std::to_string(options.repetitions) +
                     " is too few for --baseline, which has to know the noise: use " +
                     std::to_string(kBaselineRepetitions) + " or more");
  }
}

}  // namespace ronde::perf
