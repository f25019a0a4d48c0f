// SPDX-License-Identifier: Apache-2.0
// Reading what the chief does.
#include "examples/support/chief_flags.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace ronde::examples {

namespace {

// A training may go on with others of these: ranks, paths, the end, and how its work is done. All
// other flags decide what is learned.
constexpr auto kMayChange =
    std::to_array<std::string_view>({"--accumulate",   "--bucket-bytes", "--data",
                                     "--device",       "--epochs",       "--gradients",
                                     "--idle-seconds", "--job",          "--keep",
                                     "--log-every",    "--logdir",       "--overlap",
                                     "--patience",     "--plot",         "--restore",
                                     "--save-seconds", "--save-steps",   "--shuffle-submission",
                                     "--steps",        "--threads",      "--verbose"});

trainer::Flags flags_that_must_agree(const CommandLine& line) {
  trainer::Flags flags = line.flags();
  std::erase_if(flags, [](const auto& flag) {
    return std::find(kMayChange.begin(), kMayChange.end(), flag.first) != kMayChange.end();
  });
  return flags;
}

// A training that had the same end is finished when it got there.
std::string goal_of(const CommandLine& line) {
  constexpr auto kEnds = std::to_array<std::string_view>(
      {"--early-stopping", "--epochs", "--patience", "--steps", "--test-images"});
  std::string goal;
  for (const auto& [name, value] : line.flags()) {
    if (std::ranges::find(kEnds, name) != kEnds.end()) goal += name + ' ' + value + ' ';
  }
  return goal;
}

}  // namespace

void add_chief_flags(CommandLine& line) {
  line.add_flag("logdir", "",
                "directory of rank 0 for checkpoints, TensorBoard's event files and metrics.jsonl; "
                "a training that is started again goes on from the last checkpoint there");
  line.add_flag("save-seconds", "60", "write a checkpoint each so many seconds; 0: not by time");
  line.add_flag("save-steps", "0", "write a checkpoint each so many steps; 0: not by steps");
  line.add_flag("keep", "5", "keep so many of the last checkpoints, and the best one");
  line.add_flag("restore", "auto",
                "go on from a checkpoint of --logdir: auto (where there is one), must or never");
  line.add_flag("early-stopping", "off",
                "end when the loss on the test images has not fallen for --patience epochs: "
                "off, on");
  line.add_flag("patience", "3", "epochs without a gain that early stopping waits for");
  line.add_flag("log-every", "0",
                "print loss and accuracy of each so many steps, over all ranks; 0: never, and "
                "--logdir has every 50th");
  line.add_switch("verbose", "print the table of ranks at the start");
}

ChiefSettings read_chief_flags(const CommandLine& line) {
  const std::map<std::string, trainer::Restore> restores{{"auto", trainer::Restore::kAuto},
                                                         {"must", trainer::Restore::kMust},
                                                         {"never", trainer::Restore::kNever}};
  ChiefSettings settings;
  trainer::SupervisorOptions& supervisor = settings.supervisor;
  settings.all_flags = line.flags();
  supervisor.logdir = line.text("logdir");
  supervisor.save_model_secs = line.real(
      "save-seconds", [](double value) { return value >= 0.0 && value <= 1e9; },
      "a number from 0 to 1e9");
  supervisor.save_steps = line.integer("save-steps", 0, 1'000'000'000);
  supervisor.keep = line.integer("keep", 1, 1'000'000);
  supervisor.restore = restores.at(line.choice("restore", {"auto", "must", "never"}));
  supervisor.flags = flags_that_must_agree(line);
  supervisor.goal = goal_of(line);
  if (supervisor.logdir.empty() && supervisor.restore == trainer::Restore::kMust) {
    throw UsageError("--restore must needs a --logdir to restore from");
  }
  const bool stop_early = line.choice("early-stopping", {"off", "on"}) == "on";
  const std::uint64_t patience = line.integer("patience", 1, 100'000);
  settings.patience = stop_early ? patience : 0;
  settings.log_every = line.integer("log-every", 0, 1'000'000'000);
  settings.verbose = line.choice("verbose", {"off", "on"}) == "on";
  return settings;
}

}  // namespace ronde::examples
