// SPDX-License-Identifier: Apache-2.0
// The life of a start: one loop over poll(), and the phases of its end.
#include "launcher/job/job.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"
#include "launcher/agent/ranks.h"
#include "launcher/job/agents.h"
#include "launcher/job/rank_roll.h"

namespace ronde::launcher {

namespace {

using base::Instant;
using base::Nanoseconds;

// One request to stop can arrive twice: `timeout` signals its child and then the whole group.
constexpr Nanoseconds kSameRequest = std::chrono::milliseconds(200);
// How long the ranks may take to say that one of them has failed, before they are ended.
constexpr Nanoseconds kLastWordsTime = std::chrono::milliseconds(300);
// For agents to end their ranks, two seconds after they have asked them; then they are killed.
constexpr Nanoseconds kEndTime = std::chrono::seconds(3);
constexpr Nanoseconds kKillTime = std::chrono::seconds(6);
// For mpirun to end, once its ranks have.
constexpr Nanoseconds kMpirunTime = std::chrono::seconds(10);
// What ends with its job takes a moment; that is nothing to report.
constexpr Nanoseconds kQuietRest = std::chrono::milliseconds(300);
constexpr Nanoseconds kPulse = std::chrono::seconds(1);
constexpr std::size_t kPiece = std::size_t{64} << 10U;

std::string seconds_text(Nanoseconds span) {
  return base::number_text(std::chrono::duration<double>(span).count(), 6);
}

// Input of a terminal is that of its foreground.
bool may_read_input() {
  return ::isatty(STDIN_FILENO) == 0 || ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

// Thread safety: none.
class Job {
 public:
  Job(const JobPlan& plan, Output& output, const Signals& signals, const base::Clock& clock)
      : plan_(plan),
        output_(output),
        signals_(signals),
        clock_(clock),
        agents_(plan, clock),
        ranks_(plan.hosts.front().start.mpirun) {}

  Outcome run() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    strangers_ = children_of_this_process();
    begin();
    while (!over()) step();
    end_everything();
    return std::move(outcome_);
  }

 private:
  enum class Phase : std::uint8_t {
    kStarting,
    kRunning,
    kLastWords,  // a rank has failed; the others are ended at until_
    kAsked,      // by SIGTERM, or by a rank that has been stopped: they may end until until_
    kEnding,     // the agents end them, and kill them at until_
    kKilling,    // until until_ at most
    kRest,       // all have ended well; what they left behind has until until_
  };

  // ---- the hosts ----
  void begin() {
    for (std::size_t i = 0; i < plan_.hosts.size(); ++i) {
      const StartRanks& start = plan_.hosts[i].start;
      const std::int32_t first = start.mpirun ? 0 : start.first;
      const std::int32_t last = start.mpirun ? plan_.ranks : first + start.count;
      for (std::int32_t rank = first; rank < last; ++rank) ranks_.add(i, rank);
    }
    until_ = clock_.after(plan_.start_timeout);
    const base::Status started = agents_.start(signals_);
    if (!started.ok()) trouble(EXIT_FAILURE, started.message());
  }

  void step() {
    std::vector<pollfd> entries{{signals_.fd(), POLLIN, 0}};
    output_.add_to(entries);
    const bool input = input_open_ && !input_sent_ && phase_ == Phase::kRunning && may_read_input();
    if (input) entries.push_back({STDIN_FILENO, POLLIN, 0});
    agents_.add_to(entries);
    const Instant until = std::min(clock_.after(kPulse), has_limit() ? until_ : base::kNever);
    if (::poll(entries.data(), entries.size(), base::poll_milliseconds(clock_, until)) < 0) return;
    output_.serve(entries);
    if (input && std::ranges::any_of(entries, [](const pollfd& one) {
          return one.fd == STDIN_FILENO && one.revents != 0;
        })) {
      read_input();
    }
    // Signals come first, since a rank that ends after a request to end keeps its own exit code.
    take_signals();
    for (Agents::Event& said : agents_.serve(output_)) hear(said);
    if (clock_.now() - pulse_ >= kPulse) {
      pulse_ = clock_.now();
      for (Agents::Event& said : agents_.beat()) hear(said);
    }
    look();
  }

  [[nodiscard]] bool has_limit() const { return phase_ != Phase::kRunning; }

  void read_input() {
    Input input{std::string(kPiece, '\0')};
    const ssize_t size = ::read(STDIN_FILENO, input.bytes.data(), input.bytes.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    input.bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    input_open_ = size > 0;
    input_sent_ = true;
    agents_.tell(0, input);  // which has rank 0
  }

  void hear(Agents::Event& said) {
    if (said.lost) return lose(said.host, said.why);
    AgentMessage& message = *said.message;
    if (const auto* const hello = std::get_if<AgentHello>(&message)) {
      greet(said.host, *hello);
    } else if (const auto* const printed = std::get_if<Printed>(&message)) {
      output_.add(printed->error, ranks_.shown(*printed, plan_.tag));
    } else if (const auto* const ended = std::get_if<Ended>(&message)) {
      count(*ended);
    } else if (const auto* const failed = std::get_if<AgentFailed>(&message)) {
      const HostPlan& host = plan_.hosts[said.host];
      const bool named = plan_.hosts.size() > 1 || !host.here;
      trouble(failed->exit_code, (named ? "host " + host.host + ": " : "") + failed->text);
    } else if (std::holds_alternative<InputTaken>(message)) {
      input_sent_ = false;
    }
  }

  // Its agent is not there any more, and may have left its ranks alone.
  void lose(std::size_t host, const std::string& why) {
    const std::string& name = plan_.hosts[host].host;
    const std::string said = why.empty() ? "" : ": " + why;
    if (phase_ == Phase::kStarting) {
      outcome_.unreachable = name;
      return trouble(EXIT_FAILURE, "host " + name + " cannot be reached" + said);
    }
    ranks_.lose(host);
    trouble(EXIT_FAILURE,
            plan_.hosts[host].here
                ? "the agent of this host, which has started the ranks here, was killed" + said
                : "host " + name + " was lost: its agent has ended, or its line was cut" + said);
  }

  void greet(std::size_t host, const AgentHello& hello) {
    if (hello.version != RONDE_VERSION_TEXT) {
      return trouble(EXIT_FAILURE, "host " + plan_.hosts[host].host + " has Ronde " +
                                       hello.version + ", and this is " + RONDE_VERSION_TEXT +
                                       ": install the same on every host");
    }
    if (!agents_.all_there() || phase_ != Phase::kStarting) return;
    phase_ = Phase::kRunning;
    agents_.start_ranks();
  }

  void count(const Ended& ended) {
    const bool blames = phase_ != Phase::kEnding && phase_ != Phase::kKilling;
    const int code = ranks_.count(ended, blames);
    if (ranks_.mpirun_runs()) return;  // which ends the others itself
    const bool goes_on = phase_ == Phase::kRunning || phase_ == Phase::kAsked;
    // Whoever has no handler dies of the signal that asks it to end.
    const bool dies_of_it = phase_ == Phase::kAsked && code == kSignalBase + SIGTERM;
    if (goes_on && !ended_well(code) && !dies_of_it) {
      phase_ = Phase::kLastWords;
      until_ = clock_.after(kLastWordsTime);
    } else if (phase_ == Phase::kRunning && code == kExitStopped) {
      phase_ = Phase::kAsked;
      until_ = clock_.after(plan_.stop_grace);
    }
  }

  // ---- the end ----
  void trouble(int exit_code, const std::string& text) {
    if (outcome_.trouble.empty() && !ranks_.to_blame()) {
      outcome_.trouble = text;
      trouble_code_ = exit_code;
    }
    if (phase_ == Phase::kStarting) return kill();
    if (phase_ == Phase::kRunning || phase_ == Phase::kAsked) {
      phase_ = Phase::kLastWords;
      until_ = clock_.after(kLastWordsTime);
    }
  }

  void take_signals() {
    for (int signal = 0; (signal = signals_.next()) != 0;) {
      if (signal == SIGUSR1 || signal == SIGUSR2) {
        agents_.tell_all(SignalRanks{signal});
      } else if (signal != SIGCHLD) {
        stop(signal);
      }
    }
    if (outcome_.interrupted == 0 && output_.reader_gone()) stop(SIGPIPE);
  }

  void stop(int signal) {
    const Instant now = clock_.now();
    if (outcome_.interrupted != 0) {
      if (now - stopped_at_ < kSameRequest || phase_ == Phase::kKilling) return;
      output_.say("killing all ranks");
      ended_by_signal_ = true;
      return kill();
    }
    outcome_.interrupted = signal;
    stopped_at_ = now;
    const std::string name = std::string("SIG") + sigabbrev_np(signal);
    if (phase_ == Phase::kRest || phase_ == Phase::kKilling) return kill();
    const bool may_ask = phase_ == Phase::kRunning || phase_ == Phase::kAsked;
    if (signal == SIGTERM && plan_.stop_grace > Nanoseconds(0) && may_ask) {
      phase_ = Phase::kAsked;
      until_ = clock_.after(plan_.stop_grace);
      agents_.tell_all(SignalRanks{SIGTERM});
      return output_.say(name + ": the ranks have " + seconds_text(plan_.stop_grace) + " s to end");
    }
    ended_by_signal_ = true;
    if (signal != SIGPIPE) output_.say(name + ": ending all ranks");
    signal == SIGQUIT || phase_ == Phase::kStarting ? kill() : end();
  }

  void end() {
    phase_ = Phase::kEnding;
    until_ = clock_.after(kEndTime);
    agents_.tell_all(EndRanks{false});
  }

  void kill() {
    agents_.tell_all(EndRanks{true});
    if (phase_ == Phase::kStarting) agents_.give_up();  // none has anything yet
    phase_ = Phase::kKilling;
    until_ = clock_.after(kKillTime);
  }

  void look() {
    if (!output_.full()) agents_.give_credit();
    watch_mpirun();
    if (ranks_.all_ended() && phase_ != Phase::kKilling && phase_ != Phase::kRest) return rest();
    if (phase_ == Phase::kRest) tell_rest();
    if (!has_limit() || clock_.now() < until_) return;
    if (phase_ == Phase::kStarting) return nobody_answered();
    if (phase_ == Phase::kAsked) {
      output_.say("the ranks did not end in " + seconds_text(plan_.stop_grace) + " s: ending them");
      ended_by_signal_ = outcome_.interrupted != 0;
      return end();
    }
    if (phase_ == Phase::kLastWords) return end();
    if (phase_ == Phase::kEnding || phase_ == Phase::kRest) return kill();
    agents_.give_up();
  }

  void nobody_answered() {
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (!agents_.name(i).empty()) continue;
      const std::string& words = agents_.last_words(i);
      return lose(i, "no agent answered in " + seconds_text(plan_.start_timeout) + " s" +
                         (words.empty() ? "" : " (" + words + ")"));
    }
  }

  // mpirun waits for ever for a host whose line is cut. It crashes where it is told to end while it
  // ends.
  void watch_mpirun() {
    if (phase_ != Phase::kRunning || !ranks_.mpirun_runs()) return;
    if (!ranks_.to_blame() && !ranks_.all_reported()) return;
    phase_ = Phase::kLastWords;
    until_ = clock_.after(kMpirunTime);
  }

  // All have ended.
  void rest() {
    const bool well =
        outcome_.trouble.empty() && ended_well(ranks_.exit_code()) && phase_ != Phase::kEnding;
    if (!well) return kill();
    phase_ = Phase::kRest;
    rest_since_ = clock_.now();
    until_ =
        outcome_.interrupted != 0 ? stopped_at_ + plan_.stop_grace : clock_.after(plan_.stop_grace);
  }

  void tell_rest() {
    const Instant now = clock_.now();
    if (told_rest_ || now - rest_since_ < kQuietRest) return;
    const auto [processes, name] = agents_.rest();
    if (processes == 0) return;
    told_rest_ = true;
    const bool one = processes == 1;
    output_.say("the job has ended, but " +
                (one ? std::string("a process of it has")
                     : std::to_string(processes) + " processes of it have") +
                " not (" + name + (one ? "" : ", ...") + "): " + (one ? "it is" : "they are") +
                " killed in " +
                seconds_text(std::chrono::ceil<std::chrono::seconds>(until_ - now)) + " s");
  }

  [[nodiscard]] bool over() const {
    const bool ends = phase_ != Phase::kStarting && phase_ != Phase::kRunning;
    return ends && agents_.all_over();
  }

  void end_everything() {
    for (const bool error : {false, true}) output_.add(error, ranks_.rest(error));
    agents_.close();
    kill_children(strangers_, clock_);  // which an agent that was killed has left behind
    if (outcome_.interrupted == 0 && output_.reader_gone()) outcome_.interrupted = SIGPIPE;
    outcome_.reader_gone = outcome_.interrupted == SIGPIPE;
    outcome_.exit_code = ended_by_signal_            ? kSignalBase + outcome_.interrupted
                         : !outcome_.trouble.empty() ? trouble_code_
                                                     : ranks_.exit_code();
    outcome_.last_line = ranks_.last_line();
    if (!ranks_.to_blame()) return;
    outcome_.rank = ranks_.to_blame();
    outcome_.host = agents_.name(ranks_.host_of(*ranks_.to_blame()));
  }

  const JobPlan& plan_;
  Output& output_;
  const Signals& signals_;
  const base::Clock& clock_;
  std::vector<pid_t> strangers_;  // children from before
  Agents agents_;
  RankRoll ranks_;
  Phase phase_ = Phase::kStarting;
  Instant until_{};  // of this phase, but that it runs
  Instant stopped_at_{};
  Instant pulse_{};
  Instant rest_since_{};
  bool told_rest_ = false;
  bool input_open_ = true;
  bool input_sent_ = false;  // and not taken yet
  bool ended_by_signal_ = false;
  int trouble_code_ = EXIT_FAILURE;
  Outcome outcome_;
};

}  // namespace

Outcome run_job(const JobPlan& plan, Output& output, const Signals& signals,
                const base::Clock& clock) {
  return Job(plan, output, signals, clock).run();
}

}  // namespace ronde::launcher
