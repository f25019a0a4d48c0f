// SPDX-License-Identifier: Apache-2.0
// A probe on each host, through the agents that a job would have.
#include "launcher/doctor/doctor.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/doctor/findings.h"
#include "launcher/host_files.h"
#include "launcher/job/agent_line.h"
#include "launcher/job/agents.h"
#include "launcher/job/outcome.h"
#include "launcher/machine.h"
#include "launcher/options.h"
#include "launcher/output.h"
#include "launcher/plan.h"
#include "launcher/shell.h"
#include "launcher/signals.h"

namespace ronde::launcher {

namespace {

using base::Instant;
using base::Nanoseconds;

constexpr Nanoseconds kProbeTime = std::chrono::seconds(15);  // for anything that a probe does
constexpr Nanoseconds kPulse = std::chrono::seconds(1);
constexpr std::int64_t kCredit = std::int64_t{1} << 24U;  // bytes; a probe prints less
constexpr int kClockRounds = 5;

Nanoseconds time_of_day() { return std::chrono::system_clock::now().time_since_epoch(); }

// Thread safety: none.
class Visit {
 public:
  Visit(const JobPlan& plan, const Signals& signals, std::vector<HostReport>& reports)
      : plan_(plan), signals_(signals), agents_(plan, clock_) {
    for (HostReport& report : reports) hosts_.push_back({report});
  }

  // Returns the signal that has ended it, or 0.
  int run() {
    const base::Status started = agents_.start(signals_);
    for (std::size_t i = 0; !started.ok() && i < hosts_.size(); ++i) lose(i, started.message());
    int signal = serve_until(Stage::kProbing, plan_.start_timeout);
    if (signal == 0) signal = serve_until(Stage::kSeen, kProbeTime);
    std::string endpoints;
    for (const Host& host : hosts_) {
      for (const Door& door : host.report.doors) endpoints += door.endpoint + " ";
    }
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].stage == Stage::kSeen) agents_.tell(i, Input{endpoints + "\n"});
    }
    if (signal == 0) signal = serve_until(Stage::kTried, kProbeTime);
    agents_.tell_all(EndRanks{true});
    if (signal == 0) signal = serve_until(Stage::kOver, kPulse);
    output_.flush(clock_);
    return signal;
  }

 private:
  enum class Stage : std::uint8_t { kStarting, kProbing, kSeen, kTried, kOver };
  struct Host {
    HostReport& report;
    Stage stage = Stage::kStarting;
    std::string begun{};  // of a line
    LastLine errors{};
    Nanoseconds asked{};  // for its time
    int rounds = 0;
  };

  int serve_until(Stage stage, Nanoseconds time) {
    const Instant until = clock_.after(time);
    for (Instant pulse = clock_.now(); clock_.now() < until;) {
      if (std::ranges::all_of(hosts_, [&](const Host& one) { return one.stage >= stage; }))
        return 0;
      std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
      output_.add_to(entries);
      agents_.add_to(entries);
      const Instant wake = std::min(until, pulse + kPulse);
      ::poll(entries.data(), entries.size(), base::poll_milliseconds(clock_, wake));
      output_.serve(entries);
      for (int signal = 0; (signal = signals_.next()) != 0;) {
        if (signal != SIGCHLD && signal != SIGUSR1 && signal != SIGUSR2) return signal;
      }
      for (const Agents::Event& said : agents_.serve(output_)) hear(said);
      if (clock_.now() < pulse + kPulse) continue;
      pulse = clock_.now();
      agents_.tell_all(Heartbeat{});
    }
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const std::string& words = agents_.last_words(i);
      if (hosts_[i].stage < stage) {
        lose(i, "nothing was heard for " + base::seconds_text(time) +
                    (words.empty() ? "" : " (" + words + ")"));
      }
    }
    return 0;
  }

  void hear(const Agents::Event& said) {
    Host& host = hosts_[said.host];
    if (said.lost) return lose(said.host, said.why.empty() ? "its agent has ended" : said.why);
    if (const auto* const hello = std::get_if<AgentHello>(&*said.message)) {
      greet(said.host, *hello);
    } else if (const auto* const printed = std::get_if<Printed>(&*said.message)) {
      if (printed->error) return host.errors.take(printed->bytes);
      host.begun += printed->bytes;
      for (std::size_t end = 0; (end = host.begun.find('\n')) != std::string::npos;) {
        take_text(said.host, host.begun.substr(0, end));
        host.begun.erase(0, end + 1);
      }
    } else if (const auto* const failed = std::get_if<AgentFailed>(&*said.message)) {
      lose(said.host, failed->text);
    } else if (std::holds_alternative<Ended>(*said.message)) {
      lose(said.host, "the probe there has ended: " + host.errors.text());
    }
  }

  void greet(std::size_t index, const AgentHello& hello) {
    Host& host = hosts_[index];
    host.report.identity = hello.identity;
    if (hello.version != RONDE_VERSION_TEXT) {
      host.report.mending = "install Ronde " RONDE_VERSION_TEXT " on " + host.report.name +
                            ", or name another ronderun there with --agent";
      return lose(index, "has Ronde " + hello.version + ", and here is " RONDE_VERSION_TEXT);
    }
    host.stage = Stage::kProbing;
    agents_.tell(index, plan_.hosts[index].start);
    agents_.tell(index, Credit{kCredit});
  }

  void take_text(std::size_t index, const std::string& line) {
    Host& host = hosts_[index];
    const auto clock = line.starts_with("clock ")
                           ? base::parse_number<std::int64_t>(std::string_view(line).substr(6))
                           : std::nullopt;
    if (clock) {
      const Nanoseconds error = (time_of_day() - host.asked) / 2;
      if (host.rounds == 1 || error < host.report.ahead_error) {
        host.report.ahead = Nanoseconds(*clock) - (host.asked + error);
        host.report.ahead_error = error;
      }
    }
    if ((clock || line == "ready") && host.rounds < kClockRounds) {
      ++host.rounds;
      host.asked = time_of_day();
      return agents_.tell(index, Input{"clock\n"});
    }
    if (clock) host.stage = Stage::kSeen;
    if (line == "done") host.stage = Stage::kTried;
    take_line(host.report, line);
  }

  void lose(std::size_t index, std::string why) {
    if (why.ends_with('\r')) why.pop_back();  // as of ssh
    HostReport& report = hosts_[index].report;
    const Stage before = std::exchange(hosts_[index].stage, Stage::kOver);
    if (before >= Stage::kTried || !report.trouble.empty()) return;
    report.trouble = why;
    if (before != Stage::kStarting || !report.mending.empty()) return;
    std::vector<std::string> command =
        command_for(plan_.start_command, report.name, plan_.agent_program);
    command.back() = "--version";
    report.trouble = "cannot be reached: " + why;
    report.mending = mending_of(report.name, why, shell_quoted(command));
  }

  const JobPlan& plan_;
  const Signals& signals_;
  const base::SteadyClock clock_;
  Output output_;
  Agents agents_;
  std::vector<Host> hosts_;
};

int refuse(const std::string& text) {
  std::fprintf(stderr, "ronderun doctor: %s\n", base::printable(text).c_str());
  return kExitUsage;
}

// A short allreduce of the job by ronde-perf, and over several hosts TCP alone with the same bytes.
Finding speed_of(const std::vector<std::string>& arguments, const std::string& folder,
                 bool several) {
  const std::string perf = folder + "/ronde-perf";
  if (find_program(perf, "").found != Found::kYes) {
    return {Level::kOk, "all", "no ronde-perf is beside ronderun: no speed was measured"};
  }
  std::vector<std::string> words{"timeout", "--foreground", "60", folder + "/ronderun"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  // Through a program without MPI, so that mpirun starts it only where the hosts need that.
  for (const char* const word :
       {"env", perf.c_str(), "-b", "8M", "-e", "8M", "-n", "5", "-w", "1", "--place", "in",
        "--repetitions", "3", "--csv", "-", "--against", several ? "line" : ""}) {
    words.emplace_back(word);
  }
  const std::string command = shell_quoted(words);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      // NOLINTNEXTLINE(bugprone-command-processor): its words are quoted
      ::popen((command + " 2>&1 </dev/null").c_str(), "r"), ::pclose);
  std::map<std::string, double> speeds;  // in GB/s, by what has moved the bytes
  LastLine last;
  std::string error;  // that came first
  std::array<char, 4096> text{};
  while (pipe != nullptr && std::fgets(text.data(), text.size(), pipe.get()) != nullptr) {
    last.take(text.data());
    if (error.empty() && std::string_view(text.data()).starts_with("ronde-perf: ")) {
      error = last.text();
    }
    const auto cells = base::words_of(text.data(), ",\"\n");
    if (cells.size() > 15 && cells[0] == "allreduce") {
      speeds[cells[8]] = base::parse_number<double>(cells[15]).value_or(0);
    }
  }
  if (speeds["ronde"] <= 0) {
    return {Level::kFail, "all",
            "an allreduce fails, or takes a minute: " + (error.empty() ? last.text() : error),
            "see what this says: " + command};
  }
  const std::string what =
      "allreduce of 8 MiB: busbw " + base::number_text(speeds["ronde"], 3) + " GB/s" +
      (several ? ", and of TCP alone " + base::number_text(speeds["line"], 3) + " GB/s" : "");
  if (speeds["ronde"] >= speeds["line"] / 2) return {Level::kOk, "all", what};
  return {Level::kWarn, "all", what,
          "see whether RONDE_TRANSPORT=mpi or =ucx, or fewer ranks, help"};
}

// A rank on each host is a job of its own there, so that it has an input.
base::Result<Plan> plan_of(Options options, Facts facts) {
  facts.meeting = new_secret().substr(0, 32);
  facts.has_ucx = true;
  options.mpi = options.accelerate_mpi = false;
  options.mpi_args.clear();
  options.output_dir.clear();
  options.bind_to = "none";
  options.program = {options.agent.empty() ? facts.ronderun : options.agent, kProbeFlag};
  auto plan = make_plan(options, facts);
  if (!plan.ok()) return plan;
  for (HostPlan& host : plan->job.hosts) {
    if (host.here) host.start.argv.front() = facts.ronderun;
  }
  return plan;
}

}  // namespace

int run_doctor(const std::vector<std::string>& arguments) {
  const auto options = parse_options(arguments, false);
  if (!options.ok()) return refuse(options.status().message());
  if (options->help || options->version || options->dry_run) {
    std::fputs(help_text().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (!options->program.empty()) {
    return refuse("it runs no program: leave out " + options->program.front());
  }
  forget_the_rank();
  const Facts facts = facts_of_this_machine("");
  auto plan = plan_of(*options, facts);
  if (!plan.ok()) return refuse(plan.status().message());
  std::vector<HostReport> reports;
  std::string ports;
  for (HostPlan& host : plan->job.hosts) {
    HostReport& report = reports.emplace_back();
    report.name = host.host;
    report.ranks = std::exchange(host.start.count, 1);
    host.start.first = 0;
    host.start.size = 1;
    for (const std::string& one : host.start.environment) {
      if (one.starts_with("RONDE_PORTS=")) ports = one.substr(one.find('=') + 1);
    }
  }
  {
    const Signals signals;
    const int signal = Visit(plan->job, signals, reports).run();
    if (signal != 0) return kSignalBase + signal;
  }
  std::vector<Finding> findings = findings_of(reports, ports);
  for (const std::string& one : plan->messages) findings.push_back({Level::kWarn, "all", one});
  const auto fails = [](const Finding& one) { return one.level == Level::kFail; };
  const bool several = std::ranges::any_of(
      reports, [&](const HostReport& one) { return one.identity != reports.front().identity; });
  if (several && !facts.has_ucx) {
    findings.push_back({Level::kWarn, "all",
                        "no libronde_ucx.so is here: MPI starts and carries all",
                        "install Ronde with UCX, or build it where UCX's headers are"});
  }
  if (std::ranges::none_of(findings, fails)) {
    const std::string folder = facts.ronderun.substr(0, facts.ronderun.rfind('/'));
    findings.push_back(speed_of(arguments, folder, several));
  }
  std::fputs(table_of(findings).c_str(), stdout);
  return std::ranges::any_of(findings, fails) ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace ronde::launcher
