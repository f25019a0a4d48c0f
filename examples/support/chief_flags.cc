// SPDX-License-Identifier: Apache-2.0
// Reading what the chief does.
#include "examples/support/chief_flags.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ronde::examples {

namespace {

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
  line.add_flag("save-timeout", "300", "seconds that the disk has for the last checkpoint");
  line.add_flag("save-on-failure", "on",
                "save what the last step came to when another rank has died: on, off");
  line.add_flag("after-save", "",
                "shell command for each checkpoint, whose path is in RONDE_CHECKPOINT");
  line.add_flag("restore", "auto",
                "go on from a checkpoint of --logdir: auto (the newest, where there is one), must, "
                "never (begin anew), best, step-N, or the path of one elsewhere");
  line.add_flag("accept-changes", "off",
                "go on also with flags that make it another training: off, on");
  line.add_flag("max-seconds", "0",
                "save and stop after so many seconds; 0: never, but before the end of Slurm's job");
  line.add_flag("stopped-exit-code", "75",
                "exit code of a training that was stopped and saved before its end");
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
  const auto is_time = [](double value) { return value >= 0.0 && value <= 1e9; };
  constexpr const char* kTimes = "a number from 0 to 1e9";
  ChiefSettings settings;
  trainer::SupervisorOptions& supervisor = settings.supervisor;
  settings.all_flags = line.flags();
  supervisor.logdir = line.text("logdir");
  supervisor.save_model_secs = line.real("save-seconds", is_time, kTimes);
  supervisor.save_steps = line.integer("save-steps", 0, 1'000'000'000);
  supervisor.keep = line.integer("keep", 1, 1'000'000);
  supervisor.save_timeout = line.positive("save-timeout", 1e9);
  supervisor.save_on_failure = line.choice("save-on-failure", {"on", "off"}) == "on";
  supervisor.after_save = line.text("after-save");
  supervisor.restore = line.text("restore");
  supervisor.accept_changes = line.choice("accept-changes", {"off", "on"}) == "on";
  supervisor.max_seconds = line.real("max-seconds", is_time, kTimes);
  supervisor.stopped_exit_code = static_cast<int>(line.integer("stopped-exit-code", 0, 255));
  supervisor.goal = goal_of(line);
  if (supervisor.logdir.empty() && supervisor.restore != "auto" && supervisor.restore != "never") {
    throw UsageError("--restore " + supervisor.restore + " needs a --logdir to go on in");
  }
  const bool stop_early = line.choice("early-stopping", {"off", "on"}) == "on";
  const std::uint64_t patience = line.integer("patience", 1, 100'000);
  settings.patience = stop_early ? patience : 0;
  settings.log_every = line.integer("log-every", 0, 1'000'000'000);
  settings.threads = static_cast<int>(line.integer("threads", 1, 256));
  settings.verbose = line.choice("verbose", {"off", "on"}) == "on";
  return settings;
}

}  // namespace ronde::examples
