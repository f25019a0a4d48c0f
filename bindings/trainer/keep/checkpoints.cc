// SPDX-License-Identifier: Apache-2.0
// The thread that writes, and the command that runs after each write.
#include "bindings/trainer/keep/checkpoints.h"
#include "bindings/trainer/keep/checkpoint_names.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

namespace {

// Runs a command of the user's, with one more environment variable; empty: it succeeded.
std::string run_command(const std::string& command, const std::string& variable,
                        Worker::Span patience) {
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  std::array<std::string, 3> words{"sh", "-c", command};
  std::array<char*, 4> argv{words[0].data(), words[1].data(), words[2].data(), nullptr};
  posix_spawnattr_t how{};
  posix_spawnattr_init(&how);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);  // to kill all that it starts
  // It gets no standard input: that is the program's, and the command might wait for it for ever.
  posix_spawn_file_actions_t files{};
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/bin/sh", &files, &how, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  if (error != 0) return "cannot be started";
  constexpr std::chrono::milliseconds kBetweenLooks(20);
  const auto until = std::chrono::steady_clock::now() + patience;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      return "did not end in time, and was killed";
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return WIFEXITED(status) ? "has ended with " + std::to_string(WEXITSTATUS(status))
                           : "was killed by signal " + std::to_string(WTERMSIG(status));
}

}  // namespace

// Used by the writing thread while it writes, and by the caller in between.
struct Checkpoints::Shared {
  Shared(const CheckpointOptions& how, PrintLine saying, FileSystem& files,
         const OwnerPatience& patience)
      : options(how),
        say([this, saying = std::move(saying)](const std::string& line) {
          if (!left_alone) saying(line);
        }),
        directory(files, how.directory, how.keep, say, patience) {}

  void write() {
    acknowledged = directory.write(snapshot);
    if (!acknowledged || options.after_save.empty()) return;
    const std::string path = checkpoint_path(options.directory, snapshot.state.global_step);
    const std::string trouble =
        run_command(options.after_save, "RONDE_CHECKPOINT=" + path, options.timeout);
    if (trouble.empty()) return;
    acknowledged = false;
    say("the command after the save of " + path + ' ' + trouble + ": " + options.after_save);
  }

  const CheckpointOptions options;
  std::atomic<bool> left_alone{false};  // by a caller that has timed out on this disk
  const PrintLine say;
  CheckpointDirectory directory;
  Snapshot snapshot;  // its memory is reused: fresh memory costs more than a copy
  std::atomic<bool> acknowledged{true};
};

Checkpoints::Checkpoints(CheckpointOptions options, PrintLine say, FileSystem& files,
                         const OwnerPatience& patience)
    : options_(std::move(options)),
      patience_(options_.after_save.empty() ? options_.timeout : 2 * options_.timeout),
      shared_(std::make_shared<Shared>(options_, std::move(say), files, patience)) {
  beats_.start([shared = shared_, ended = ended_.get_future().share()] {
    while (ended.wait_for(Owner::kBetweenBeats) == std::future_status::timeout) {
      try {
        shared->directory.beat();
      } catch (const DataError&) {  // NOLINT(bugprone-empty-catch): the next write says so
      }
    }
  });
}

Checkpoints::~Checkpoints() {
  if (!shared_->left_alone && !writer_.wait(patience_)) shared_->left_alone = true;
  ended_.set_value();
  beats_.wait(std::chrono::seconds(1));  // so that the directory is free where its disk answers
}

std::optional<CheckpointState> Checkpoints::restore(const RestoreOptions& options,
                                                    const std::vector<StateTensor>& tensors) {
  auto state = shared_->directory.restore(options, tensors);
  best_ = shared_->directory.best();
  return state;
}

bool Checkpoints::save(const CheckpointState& state, const std::vector<StateTensor>& tensors,
                       std::optional<double> metric, Worker::Span patience) {
  if (!writer_.wait(patience)) return false;
  best_ = shared_->directory.best();
  if (metric && is_best(*metric)) best_ = metric;
  shared_->acknowledged = false;
  try {
    Snapshot& snapshot = shared_->snapshot;
    snapshot = {state, to_safetensors(tensors, {}, std::move(snapshot.tensors)), metric};
  } catch (const std::bad_alloc&) {
    shared_->say("there is no memory for a copy of step " + std::to_string(state.global_step) +
                 ", which is not saved");
    return true;
  }
  try {
    writer_.start([shared = shared_] { shared->write(); });
  } catch (const std::system_error& error) {  // a host with too many threads for a moment
    shared_->say("step " + std::to_string(state.global_step) +
                 " is not saved: no thread for it: " + error.what());
  }
  return true;
}

bool Checkpoints::flush() {
  if (writer_.wait(patience_)) {
    best_ = shared_->directory.best();
    return shared_->acknowledged;
  }
  leave_alone();
  return false;
}

void Checkpoints::leave_alone() {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count();
  shared_->say("the disk of " + options_.directory + " has not answered for " +
               std::to_string(seconds) + " s");
  shared_->left_alone = true;
}

bool Checkpoints::is_best(double metric) {
  if (writer_.wait({})) best_ = shared_->directory.best();  // the write may have failed
  return std::isfinite(metric) && (!best_ || metric < *best_);
}

const TrainingRecord& Checkpoints::record() { return shared_->directory.record(); }

void Checkpoints::set_finished(std::optional<std::uint64_t> step, const std::string& goal,
                               const std::string& result) {
  bool in_time = writer_.wait(options_.timeout);
  if (in_time) {
    try {
      writer_.start([shared = shared_, step, goal, result] {
        shared->directory.set_finished(step, goal, result);
      });
    } catch (const std::system_error& error) {
      throw DataError(options_.directory +
                      " cannot be told whether it has finished: no thread for it: " + error.what());
    }
    in_time = writer_.wait(options_.timeout);
  }
  if (!in_time) {
    leave_alone();
    throw DataError("whether " + options_.directory + " says that it has finished is not known");
  }
  writer_.rethrow();
}

}  // namespace ronde::trainer
