// SPDX-License-Identifier: Apache-2.0
// ronderun: starts the ranks of a job.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "launcher/command_line.h"
#include "launcher/endings.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/process.h"
#include "launcher/signals.h"
#include "launcher/streams.h"

namespace ronde::launcher {

namespace {

// mpirun ends its ranks within about two seconds.
constexpr std::chrono::seconds kGrace(10);

void print_line(const std::string& text) {
  std::fprintf(stderr, "ronderun: %s\n", base::printable(text).c_str());
}

int refuse(int exit_code, const std::string& text) {
  print_line(text);
  return exit_code;
}

int not_found(const std::string& program, const std::string& path) {
  const bool is_here = find_program("./" + program, path).found == Found::kYes;
  return refuse(kExitNotFound, "there is no program " + program +
                                   (program.find('/') != std::string::npos ? ": is it built?"
                                    : is_here ? " in PATH: did you mean ./" + program + "?"
                                              : " in PATH: give its path, as in ./" + program));
}

// Checks what mpirun would fail on with a page of text. Returns an exit code, 0 if all is well.
int check_files(const Options& options, Facts& facts) {
  const char* variable = std::getenv("PATH");
  const std::string path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  const Program mpirun = find_program("mpirun", path);
  if (mpirun.found != Found::kYes) {
    return refuse(kExitNotFound, "mpirun is not in PATH: install Open MPI (Debian: openmpi-bin)");
  }
  facts.mpirun = mpirun.path;
  if (!options.hostfile.empty() && access(options.hostfile.c_str(), R_OK) != 0) {
    return refuse(kExitUsage, "--hostfile " + options.hostfile + " cannot be read");
  }
  const std::string& name = options.program.front();
  const Program program = find_program(name, path);
  if (program.found == Found::kNo) return not_found(name, path);
  if (program.found == Found::kNotExecutable) {
    return refuse(kExitNotExecutable, program.path +
                                          " is not an executable file: name the program, or "
                                          "make it executable with chmod +x");
  }
  return 0;
}

// Makes the folder here; the ranks of other hosts make theirs. Returns an exit code, 0 if all is
// well.
int make_output_dir(Options& options) {
  if (options.output_dir.empty()) return 0;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(options.output_dir, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error || access(folder.c_str(), W_OK | X_OK) != 0) {
    return refuse(kExitUsage,
                  "--output-dir " + options.output_dir +
                      " cannot be written: does its folder exist, and may you write there?");
  }
  options.output_dir = folder.string();
  return 0;
}

// What a start of the job leaves for the next one.
struct Ending {
  Start start;
  std::string text;  // for the user; empty: nothing to say
};

// As refuse(), once there are ranks' words that come before.
int say_and_return(Output& output, int exit_code, const std::string& text) {
  output.say(text);
  return exit_code;
}

// Runs the job once. The exit code is that of ronderun; `ending` has none where nothing could be
// started.
int run_once(const Options& options, Facts facts, const Signals& signals, Output& output,
             std::optional<Ending>& ending) {
  const base::SteadyClock clock;
  Streams streams(output);
  base::Status opened = options.verbose ? base::Status() : streams.read_mpirun();
  if (opened.ok() && options.tag) opened = streams.tag_ranks(*options.ranks);
  if (!opened.ok()) return say_and_return(output, EXIT_FAILURE, opened.message());
  facts.tag_folder = streams.folder();
  const auto planned = make_command_line(options, facts);
  if (!planned.ok()) return say_and_return(output, kExitUsage, planned.status().message());
  if (options.verbose) output.say(shell_quoted(planned->argv));
  // This program has one thread. `facts` do not change by it, so every start has a new secret.
  if (planned->needs_secret && ::setenv(kSecretVariable, new_secret().c_str(), 1) != 0) {
    return say_and_return(output, EXIT_FAILURE, base::Status::system("setenv", errno).message());
  }
  const base::Instant begin = clock.now();
  const auto begin_of_files = std::filesystem::file_time_type::clock::now();
  const auto outcome = run_to_end(planned->argv, *options.ranks, streams, signals, clock,
                                  {options.stop_grace, kGrace});
  if (!outcome.ok()) return say_and_return(output, kExitNotFound, outcome.status().message());
  ending.emplace();
  ending->start = {*outcome, streams.cause(),
                   options.output_dir.empty() ? streams.last_line()
                                              : last_line_in(options.output_dir, begin_of_files),
                   clock.now() - begin};
  ending->text =
      verdict(*outcome, streams.cause(), planned->one_host ? base::host_name() : std::string());
  return outcome->exit_code;
}

// Runs the job, and again while that may help. The exit code is the last one's.
int run_attempts(const Options& options, Facts facts, Output& output) {
  const Signals signals;
  Restarts restarts(options.restarts, options.restart_window);
  for (;; ++facts.attempt) {
    std::optional<Ending> ending;
    const int exit_code = run_once(options, facts, signals, output, ending);
    if (!ending.has_value()) return exit_code;
    const Restarts::Next next = restarts.after(ending->start);
    if (next != Restarts::Next::kAgain) {
      const bool gives_up = next == Restarts::Next::kGiveUp;
      const std::string text = gives_up ? giving_up_line(ending->text) : ending->text;
      if (!text.empty()) output.say(text);
      return exit_code;
    }
    output.say(restart_line(ending->text, restarts.number(), options.restarts));
    const int signal = signals.sleep(pause_before(restarts.number()), output, base::SteadyClock());
    if (signal != 0) {
      return say_and_return(
          output, kSignalBase + signal,
          std::string("SIG") + sigabbrev_np(signal) + ": the job is not started again");
    }
  }
}

int run_attempts_and_print(const Options& options, Facts facts) {
  Output output;
  const int exit_code = run_attempts(options, std::move(facts), output);
  output.flush(base::SteadyClock());
  return exit_code;
}

// Plans and runs the job. The exit code is that of ronderun.
int start(Options& options) {
  forget_the_rank();
  Facts facts = facts_of_this_machine();
  const auto planned = make_command_line(options, facts);  // first: it needs no files
  if (!planned.ok()) return refuse(kExitUsage, planned.status().message());
  for (const std::string& message : planned->messages) print_line(message);
  if (options.dry_run) {
    std::puts(shell_quoted(planned->argv).c_str());
    return 0;
  }
  int trouble = check_files(options, facts);
  if (trouble == 0) trouble = make_output_dir(options);
  return trouble != 0 ? trouble : run_attempts_and_print(options, facts);
}

int run(const std::vector<std::string>& arguments) {
  auto options = parse_options(arguments);
  if (!options.ok()) return refuse(kExitUsage, options.status().message());
  if (options->help) {
    std::fputs(help_text().c_str(), stdout);
    return 0;
  }
  if (options->version) {
    std::puts("ronderun " RONDE_VERSION_TEXT);
    return 0;
  }
  return start(*options);
}

}  // namespace

}  // namespace ronde::launcher

int main(int argc, char** argv) {
  ronde::base::take_standard_descriptors();
  try {
    return ronde::launcher::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const std::exception& error) {  // from the standard library: no memory
    std::fprintf(stderr, "ronderun: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
