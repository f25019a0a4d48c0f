// SPDX-License-Identifier: Apache-2.0
// How signals, children and exit codes are handled; the only part of ronderun that lives with the
// job.
#include "launcher/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <vector>

#include "base/text.h"
#include "launcher/process_table.h"

namespace ronde::launcher {

namespace {

using base::Instant;
using base::Nanoseconds;
using base::Result;
using base::Status;

// One request to stop can arrive twice: `timeout` signals its child and then the whole group.
constexpr Nanoseconds kSameRequest = std::chrono::milliseconds(200);
// While killing, we look for new children this often: they become ours as their parents die.
constexpr Nanoseconds kKillPause = std::chrono::milliseconds(5);
constexpr Nanoseconds kKillDeadline = std::chrono::seconds(5);
// While the ranks are asked to end, we look this often for ranks that have only just started.
constexpr Nanoseconds kLookForRanks = std::chrono::milliseconds(100);
// What ends with its job takes a moment; that is nothing to report.
constexpr Nanoseconds kQuietRest = std::chrono::milliseconds(300);

std::string seconds_text(Nanoseconds span) {
  return base::number_text(std::chrono::duration<double>(span).count(), 6);
}

bool ended_well(int exit_code) { return exit_code == 0 || exit_code == kExitStopped; }

std::string rest_line(const std::vector<pid_t>& rest, Nanoseconds left) {
  const bool one = rest.size() == 1;
  return "the job has ended, but " +
         (one ? std::string("a process of it has")
              : std::to_string(rest.size()) + " processes of it have") +
         " not (" + name_of(rest.front()) + (one ? "" : ", ...") +
         "): " + (one ? "it is" : "they are") + " killed in " +
         seconds_text(std::chrono::ceil<std::chrono::seconds>(left)) + " s";
}

// The terminal sends Ctrl-C to every process of its foreground group.
bool owns_terminal() { return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp(); }

// Runs in the forked child; returns only by failing, with an errno.
int become(const std::vector<char*>& argv, const Signals& signals, bool own_group, int error_end,
           pid_t parent) {
  if (own_group) setpgid(0, 0);
  if (error_end >= 0 && dup2(error_end, STDERR_FILENO) < 0) return errno;
  // If ronderun is killed outright, mpirun still ends its ranks.
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return errno;
  if (getppid() != parent) return ESRCH;
  signals.unblock_in_child();
  execvp(argv[0], argv.data());
  return errno;
}

// One run of mpirun. Thread safety: none; for programs of one thread.
class Job {
 public:
  Job(std::int64_t ranks, Streams& streams, const Signals& signals, const base::Clock& clock,
      const Graces& graces)
      : ranks_(ranks), streams_(streams), signals_(signals), clock_(clock), graces_(graces) {}

  Status start(std::span<const std::string> argv) {
    if (!signals_.ready()) return Status::system("signalfd", errno);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return Status::system("prctl", errno);
    strangers_ = children_of(getpid());
    own_group_ = !owns_terminal();
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    std::array<int, 2> pipe{};  // carries the errno of a failed exec; exec itself closes it
    if (pipe2(pipe.data(), O_CLOEXEC) != 0) return Status::system("pipe", errno);
    const pid_t parent = getpid();
    mpirun_ = fork();
    if (mpirun_ == 0) {
      const int error = become(words, signals_, own_group_, streams_.error_end(), parent);
      const ssize_t written = write(pipe[1], &error, sizeof error);
      _exit(written == sizeof error ? EXIT_FAILURE : EXIT_FAILURE + 1);
    }
    const int fork_error = mpirun_ < 0 ? errno : 0;
    close(pipe[1]);
    streams_.close_error_end();
    int exec_error = 0;
    const ssize_t got = fork_error == 0 ? read(pipe[0], &exec_error, sizeof exec_error) : 0;
    close(pipe[0]);
    if (fork_error != 0) return Status::system("fork", fork_error);
    if (got == sizeof exec_error) {
      waitpid(mpirun_, nullptr, 0);
      return Status::system("starting " + argv[0], exec_error);
    }
    return {};
  }

  Outcome wait() {
    while (!ended_) {
      bool from_kernel = false;
      const int signal = signals_.wait(patience(), streams_, &from_kernel);
      if (signal == SIGCHLD) {
        reap();
      } else if (signal == SIGUSR1 || signal == SIGUSR2) {
        kill(mpirun(), signal);
      } else if (signal != 0) {
        stop(signal, from_kernel);
      } else if (phase_ == Phase::kEnding && clock_.now() >= until_) {
        streams_.say("the ranks did not end in time: killing them");
        kill_all();
      }
      if (phase_ == Phase::kAsked && !ended_) ask_on();
      if (!stopping() && streams_.reader_gone()) stop(SIGPIPE, false);
    }
    if (phase_ == Phase::kAsked && all_ranks_left_well()) outcome_.exit_code = code_of_ranks();
    if (phase_ != Phase::kEnding && ended_well(outcome_.exit_code)) wait_for_rest();
    kill_all();
    streams_.finish(clock_);
    if (!stopping() && streams_.reader_gone()) outcome_.interrupted = SIGPIPE;
    outcome_.reader_gone = outcome_.interrupted == SIGPIPE;
    if (phase_ == Phase::kEnding) outcome_.exit_code = kSignalBase + outcome_.interrupted;
    return outcome_;
  }

 private:
  enum class Phase : std::uint8_t {
    kRunning,
    kAsked,   // by SIGTERM: the ranks may end by themselves until until_
    kEnding,  // mpirun ends them, and is killed at until_
  };

  [[nodiscard]] bool stopping() const { return outcome_.interrupted != 0; }

  // A job may take any time, its end may not.
  [[nodiscard]] Nanoseconds patience() const {
    if (phase_ == Phase::kRunning) return std::chrono::hours(1);
    const Nanoseconds left = std::max(until_ - clock_.now(), Nanoseconds(0));
    return phase_ == Phase::kAsked ? std::min(left, kLookForRanks) : left;
  }

  // What signals for mpirun are sent to: it may stand behind a script, which would die of them.
  [[nodiscard]] pid_t mpirun() const {
    const pid_t found = mpirun_below(mpirun_);
    return found != 0 ? found : mpirun_;
  }

  void stop(int signal, bool from_kernel) {
    const Instant now = clock_.now();
    if (stopping()) {
      if (now - stopped_at_ < kSameRequest) return;
      phase_ = Phase::kEnding;
      streams_.say("killing all ranks");
      kill_all();
      return;
    }
    outcome_.interrupted = signal;
    stopped_at_ = now;
    const std::string name = std::string("SIG") + sigabbrev_np(signal);
    if (signal == SIGTERM && graces_.stop > Nanoseconds(0)) {
      ask();
    } else if (signal == SIGQUIT) {
      phase_ = Phase::kEnding;
      kill_all();
    } else {
      // A terminal has sent SIGINT to mpirun as well, and a second one would make it abandon its
      // ranks.
      end(own_group_ || signal != SIGINT || !from_kernel);
    }
    if (phase_ == Phase::kAsked) {
      streams_.say(name + ": the ranks have " + seconds_text(graces_.stop) + " s to end");
    } else if (signal != SIGPIPE) {
      streams_.say(name + ": ending all ranks");
    }
  }

  // Passes SIGTERM to the ranks of this host, and says how many of them have had it by now. Each
  // has it once.
  std::size_t ask_ranks() {
    for (const pid_t rank : ranks_below(mpirun_, asked_)) {
      asked_.insert(rank);
      kill(rank, SIGTERM);
    }
    return asked_.size();
  }

  // The job may end by itself, with an exit code of its own. mpirun passes SIGUSR2 on to the ranks
  // of all hosts, and not SIGTERM, which would end them. Before it can, no rank has started.
  void ask() {
    phase_ = Phase::kAsked;
    until_ = clock_.after(graces_.stop);
    reap();  // a script before mpirun may be gone already
    if (ended_ || ask_ranks() > 0) return;
    const pid_t mpirun = mpirun_below(mpirun_);
    if (mpirun == 0) {
      streams_.say("there is neither a rank nor mpirun below process " + std::to_string(mpirun_) +
                   " (" + name_of(mpirun_) + "): that process itself gets SIGTERM");
      kill(mpirun_, SIGTERM);
    } else if (catches(mpirun, SIGUSR2)) {
      kill(mpirun, SIGUSR2);
    } else {
      end(true);
    }
  }

  void ask_on() {
    if (clock_.now() < until_) {
      ask_ranks();
      return;
    }
    end(true);
    streams_.say("the ranks did not end in " + seconds_text(graces_.stop) + " s: ending them");
  }

  // Ends the job now. mpirun waits a second before it passes SIGTERM on, and then follows it with
  // SIGKILL at once: a rank that wants to tidy up has to be notified earlier. This reaches the
  // ranks of this host only.
  void end(bool signal_mpirun) {
    phase_ = Phase::kEnding;
    until_ = clock_.after(graces_.end);
    // Found first: mpirun crashes of SIGTERM once it has noticed that a rank has died.
    const pid_t mpirun = signal_mpirun ? this->mpirun() : 0;
    ask_ranks();
    if (signal_mpirun) kill(mpirun, SIGTERM);
  }

  // Collects the children that have ended; true if there were any.
  bool reap() {
    bool any = false;
    int status = 0;
    for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      any = true;
      if (asked_.count(process) != 0) left_[process] = exit_code_of(status);
      if (process != mpirun_) continue;
      ended_ = true;
      outcome_.exit_code = exit_code_of(status);
    }
    if (ended_ && phase_ == Phase::kAsked) look_for_heir();
    return any;
  }

  // A signal to every process at once kills a script before the mpirun that it has started, which
  // is a child of ours then.
  void look_for_heir() {
    for (const pid_t child : children()) {
      if (!is_mpirun(child)) continue;
      mpirun_ = child;
      ended_ = false;
    }
  }

  // mpirun's exit code says nothing of the ranks where a signal has reached it too. It leaves those
  // that had ended by then to us.
  [[nodiscard]] bool all_ranks_left_well() const {
    return ranks_ > 0 && static_cast<std::int64_t>(asked_.size()) == ranks_ &&
           left_.size() == asked_.size() &&
           std::all_of(left_.begin(), left_.end(),
                       [](const auto& left) { return ended_well(left.second); });
  }

  [[nodiscard]] int code_of_ranks() const {
    const bool stopped = std::any_of(left_.begin(), left_.end(),
                                     [](const auto& left) { return left.second == kExitStopped; });
    return stopped ? kExitStopped : 0;
  }

  // The processes that the job has left to us.
  [[nodiscard]] std::vector<pid_t> children() const {
    std::vector<pid_t> result;
    for (const pid_t child : children_of(getpid())) {
      if (strangers_.count(child) == 0) result.push_back(child);
    }
    return result;
  }

  // What still runs when a job has ended well may be at work for it, as an upload of its last
  // checkpoint: it has what the stop has left of the grace, or until somebody asks to stop.
  void wait_for_rest() {
    const Instant begin = clock_.now();
    until_ = stopping() ? stopped_at_ + graces_.stop : clock_.after(graces_.stop);
    bool told = false;
    for (Instant now = begin; now < until_; now = clock_.now()) {
      reap();
      const std::vector<pid_t> rest = children();
      if (rest.empty()) return;
      if (!told && now - begin >= kQuietRest) {
        streams_.say(rest_line(rest, until_ - now));
        told = true;
      }
      bool from_kernel = false;
      const int signal =
          signals_.wait(std::min(until_ - now, kLookForRanks), streams_, &from_kernel);
      if (signal == 0 || signal == SIGCHLD || signal == SIGUSR1 || signal == SIGUSR2) continue;
      if (stopping() && now - stopped_at_ < kSameRequest) continue;
      if (!stopping()) outcome_.interrupted = signal;
      return;
    }
  }

  // Kills mpirun and all processes that it leaves to us, generation after generation.
  void kill_all() {
    const Instant deadline = clock_.after(kKillDeadline);
    if (!ended_) kill(mpirun_, SIGKILL);
    while (clock_.now() < deadline) {
      bool left = false;
      for (const pid_t child : children()) {
        left = true;
        kill(child, SIGKILL);
      }
      if (!reap() && !left) break;
      const timespec pause{0, static_cast<long>(kKillPause.count())};
      nanosleep(&pause, nullptr);
    }
    if (!ended_) {
      streams_.say("mpirun (process " + std::to_string(mpirun_) +
                   ") cannot be killed: leaving it running");
      ended_ = true;
    }
  }

  const std::int64_t ranks_;
  Streams& streams_;
  const Signals& signals_;
  const base::Clock& clock_;
  const Graces graces_;
  std::set<pid_t> strangers_;  // children from before we started, which are not the job's
  pid_t mpirun_ = 0;
  bool own_group_ = false;
  bool ended_ = false;
  Instant stopped_at_{};
  Phase phase_ = Phase::kRunning;
  Instant until_{};            // when this phase is over
  std::set<pid_t> asked_;      // ranks that have been sent SIGTERM
  std::map<pid_t, int> left_;  // those of them that mpirun has left to us, with their exit codes
  Outcome outcome_;
};

}  // namespace

int exit_code_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return kSignalBase + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

Result<Outcome> run_to_end(std::span<const std::string> argv, std::int64_t ranks, Streams& streams,
                           const Signals& signals, const base::Clock& clock, const Graces& graces) {
  Job job(ranks, streams, signals, clock, graces);
  RONDE_RETURN_IF_ERROR(job.start(argv));
  return job.wait();
}

}  // namespace ronde::launcher
