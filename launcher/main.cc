// SPDX-License-Identifier: Apache-2.0
// ronderun: starts the ranks of a job.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/status.h"
#include "launcher/command_line.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "launcher/process.h"
#include "launcher/restarts.h"
#include "launcher/signals.h"
#include "launcher/streams.h"

namespace ronde::launcher {

namespace {

// Exit codes of ronderun's own failures; the last two are those of a shell.
constexpr int kBadUsage = 2;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

// mpirun ends its ranks within about two seconds.
constexpr std::chrono::seconds kGrace(10);

void print_line(const std::string& text) { std::fprintf(stderr, "ronderun: %s\n", text.c_str()); }

int refuse(int exit_code, const std::string& text) {
  print_line(text);
  return exit_code;
}

int not_found(const std::string& program, const std::string& path) {
  const bool is_here = find_program("./" + program, path).found == Found::kYes;
  return refuse(kNotFound, "there is no program " + program +
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
    return refuse(kNotFound, "mpirun is not in PATH: install Open MPI (Debian: openmpi-bin)");
  }
  facts.mpirun = mpirun.path;
  if (!options.hostfile.empty() && access(options.hostfile.c_str(), R_OK) != 0) {
    return refuse(kBadUsage, "--hostfile " + options.hostfile + " cannot be read");
  }
  const std::string& name = options.program.front();
  const Program program = find_program(name, path);
  if (program.found == Found::kNo) return not_found(name, path);
  if (program.found == Found::kNotExecutable) {
    return refuse(kNotExecutable, program.path +
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
    return refuse(kBadUsage,
                  "--output-dir " + options.output_dir +
                      " cannot be written: does its folder exist, and may you write there?");
  }
  options.output_dir = folder.string();
  return 0;
}

// What a start of the job leaves for the next one.
struct Ending {
  std::string text;       // for the user; empty: nothing to say
  bool restarts = false;  // the job may go better when it is started again
};

// Runs the job once. The exit code is that of ronderun.
int run_once(const Options& options, Facts facts, const Signals& signals, Ending& ending) {
  Streams streams;
  base::Status opened = options.verbose ? base::Status() : streams.read_mpirun();
  if (opened.ok() && options.tag) opened = streams.tag_ranks(*options.ranks);
  if (!opened.ok()) return refuse(EXIT_FAILURE, opened.message());
  facts.tag_folder = streams.folder();
  const auto planned = make_command_line(options, facts);
  if (!planned.ok()) return refuse(kBadUsage, planned.status().message());
  if (options.verbose) print_line(shell_quoted(planned->argv));
  const auto outcome = run_to_end(planned->argv, streams, signals, base::SteadyClock(),
                                  {options.stop_grace, kGrace});
  if (!outcome.ok()) return refuse(kNotFound, outcome.status().message());
  ending.text =
      verdict(*outcome, streams.cause(), planned->one_host ? base::host_name() : std::string());
  ending.restarts = may_restart(*outcome, streams.cause());
  return outcome->exit_code;
}

// Runs the job, and again while it fails and may be restarted. The exit code is the last one's.
int run_attempts(const Options& options, Facts facts) {
  const Signals signals;
  for (;; ++facts.attempt) {
    Ending ending;
    const int exit_code = run_once(options, facts, signals, ending);
    if (!ending.restarts || facts.attempt >= options.restarts) {
      if (!ending.text.empty()) print_line(ending.text);
      return exit_code;
    }
    const std::int64_t restart = facts.attempt + 1;
    print_line(restart_line(ending.text, restart, options.restarts));
    const int signal = signals.sleep(pause_before(restart), base::SteadyClock());
    if (signal != 0) {
      return refuse(kSignalBase + signal,
                    std::string("SIG") + sigabbrev_np(signal) + ": the job is not started again");
    }
  }
}

// Plans and runs the job. The exit code is that of ronderun.
int start(Options& options) {
  Facts facts = facts_of_this_machine();
  const auto planned = make_command_line(options, facts);  // first: it needs no files
  if (!planned.ok()) return refuse(kBadUsage, planned.status().message());
  for (const std::string& message : planned->messages) print_line(message);
  if (options.dry_run) {
    std::puts(shell_quoted(planned->argv).c_str());
    return 0;
  }
  int trouble = check_files(options, facts);
  if (trouble == 0) trouble = make_output_dir(options);
  return trouble != 0 ? trouble : run_attempts(options, facts);
}

int run(const std::vector<std::string>& arguments) {
  auto options = parse_options(arguments);
  if (!options.ok()) return refuse(kBadUsage, options.status().message());
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
  try {
    return ronde::launcher::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const std::exception& error) {  // from the standard library: no memory
    std::fprintf(stderr, "ronderun: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
