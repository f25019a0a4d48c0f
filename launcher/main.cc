// SPDX-License-Identifier: Apache-2.0
// ronderun: starts the ranks of a job.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/ranks.h"
#include "launcher/doctor/doctor.h"
#include "launcher/host_files.h"
#include "launcher/job/job.h"
#include "launcher/job/outcome.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/plan.h"
#include "launcher/signals.h"

namespace ronde::launcher {

namespace {

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

std::string path_variable() {
  const char* variable = std::getenv("PATH");
  return variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
}

// Checks what would fail on every host. Returns an exit code, 0 if all is well.
int check_files(const Options& options, const Program& program, const Plan& plan, Facts& facts) {
  const std::string& name = options.program.front();
  if (program.found == Found::kNo) return not_found(name, path_variable());
  if (program.found == Found::kNotExecutable) {
    return refuse(kExitNotExecutable, program.path +
                                          " is not an executable file: name the program, or "
                                          "make it executable with chmod +x");
  }
  if (!plan.job.hosts.front().start.mpirun) return 0;
  const Program mpirun = find_program("mpirun", path_variable());
  if (mpirun.found != Found::kYes) {
    return refuse(kExitNotFound, "mpirun is not in PATH: install Open MPI (Debian: openmpi-bin)");
  }
  facts.mpirun = mpirun.path;
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

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%F %T %z", &local);
  return text.data();
}

// Each start has a meeting and a secret of its own.
void renew(Facts& facts) {
  facts.meeting = new_secret().substr(0, 32);
  facts.secret = new_secret();
  facts.now = time_text();
}

// From now on, where the others have slots enough; else it may be back.
void leave_out(const std::string& host, const Options& options, Facts& facts, Output& output) {
  facts.lost.push_back(host);
  if (make_plan(options, facts).ok()) {
    output.say("host " + host + " is left out from now on");
  } else {
    facts.lost.pop_back();
  }
}

// Runs the job, and again while that may help. The exit code is the last one's.
int run_attempts(const Options& options, Facts facts, Output& output) {
  const base::SteadyClock clock;
  const Signals signals;
  Restarts restarts(options.restarts, options.restart_window);
  for (;; ++facts.attempt) {
    renew(facts);
    const auto plan = make_plan(options, facts);
    if (!plan.ok()) {
      output.say(plan.status().message());
      return kExitUsage;
    }
    if (options.verbose) output.say(text_of(*plan));
    if (options.verbose && !plan->binding_reason.empty()) output.say(plan->binding_reason);
    const base::Instant begin = clock.now();
    const Outcome outcome = run_job(plan->job, output, signals, clock);
    const std::string text = verdict(outcome);
    const Restarts::Next next = restarts.after({outcome, clock.now() - begin});
    if (next != Restarts::Next::kAgain) {
      const bool gives_up = next == Restarts::Next::kGiveUp;
      if (!text.empty()) output.say(gives_up ? giving_up_line(text) : text);
      return outcome.exit_code;
    }
    if (!outcome.unreachable.empty() && plan->hosts > 1)
      leave_out(outcome.unreachable, options, facts, output);
    output.say(restart_line(text, restarts.number(), options.restarts));
    const int signal = signals.sleep(pause_before(restarts.number()), output, clock);
    if (signal != 0) {
      output.say(std::string("SIG") + sigabbrev_np(signal) + ": the job is not started again");
      return kSignalBase + signal;
    }
  }
}

// Plans and runs the job. The exit code is that of ronderun.
int start(Options& options) {
  forget_the_rank();
  std::string& name = options.program.front();
  const bool relative = name.find('/') != std::string::npos && name.front() != '/';
  const Program program = find_program(
      relative && !options.folder.empty() ? options.folder + "/" + name : name, path_variable());
  Facts facts = facts_of_this_machine(program.path);
  renew(facts);
  const auto planned = make_plan(options, facts);
  if (!planned.ok()) return refuse(kExitUsage, planned.status().message());
  for (const std::string& message : planned->messages) print_line(message);
  if (options.dry_run) {
    std::puts(text_of(*planned).c_str());
    return 0;
  }
  int trouble = check_files(options, program, *planned, facts);
  if (trouble == 0) trouble = make_output_dir(options);
  if (trouble != 0) return trouble;
  Output output;
  const int exit_code = run_attempts(options, std::move(facts), output);
  output.flush(base::SteadyClock());
  const std::string lost = output.error();
  if (lost.empty()) return exit_code;
  print_line(lost);
  return exit_code != 0 ? exit_code : EXIT_FAILURE;
}

// Waits for the agent, and ends what it leaves behind where it is killed.
int watch_agent(pid_t agent) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const int one : {SIGTERM, SIGHUP, SIGINT, SIGQUIT}) std::signal(one, SIG_IGN);
  int status = 0;
  while (::waitpid(agent, &status, 0) < 0 && errno == EINTR) {
  }
  kill_children({}, base::SteadyClock());
  return exit_code_of(status);
}

// Another ronderun has started this one, and speaks with it over the standard input and output.
int be_an_agent() {
  base::FileDescriptor in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  base::FileDescriptor out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  std::fputs(kAgentMark, stdout);
  std::fflush(stdout);
  const base::FileDescriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(null.get(), STDOUT_FILENO);
  const pid_t watcher = ::getpid();
  const pid_t agent = ::fork();
  if (agent > 0) {
    in.reset();
    out.reset();
    return watch_agent(agent);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (agent < 0 || ::getppid() != watcher) return EXIT_FAILURE;
  return run_agent(Channel(std::move(in), std::move(out)), true);
}

int run(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == kAgentFlag) return be_an_agent();
  if (arguments.size() > 4 && arguments.front() == kForMpirunFlag) {
    return run_for_mpirun(arguments[1], arguments[2], arguments[3],
                          {arguments.begin() + 4, arguments.end()});
  }
  if (!arguments.empty() && arguments.front() == kProbeFlag) return run_probe();
  if (!arguments.empty() && arguments.front() == "doctor") {
    return run_doctor({arguments.begin() + 1, arguments.end()});
  }
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
  if (options->check_build) {
    std::fputs(text_of_build().c_str(), stdout);
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
