// SPDX-License-Identifier: Apache-2.0
// How signals, children and exit codes are handled; the only part of ronderun that lives with the
// job.
#include "launcher/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

namespace ronde::launcher {

namespace {

using base::Instant;
using base::Nanoseconds;
using base::Result;
using base::Status;

constexpr int kSignalBase = 128;  // what a shell adds to the number of a signal

// One request to stop can arrive twice: `timeout` signals its child and then the whole group.
constexpr Nanoseconds kSameRequest = std::chrono::milliseconds(200);
// While killing, we look for new children this often: they become ours as their parents die.
constexpr Nanoseconds kKillPause = std::chrono::milliseconds(5);
constexpr Nanoseconds kKillDeadline = std::chrono::seconds(5);
constexpr std::int64_t kLongestPollMs = 3'600'000;

// The parent of a process, or 0 when it is gone.
pid_t parent_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return 0;
  pid_t parent = 0;
  std::from_chars(line.data() + name_end + 4, line.data() + line.size(), parent);
  return parent;
}

std::set<pid_t> children_of(pid_t parent) {
  std::set<pid_t> result;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return result;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    pid_t process = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (error != std::errc() || stop != name.data() + name.size()) continue;
    if (parent_of(std::string(name)) == parent) result.insert(process);
  }
  closedir(folder);
  return result;
}

// mpirun's other children are its connections to other hosts.
bool is_rank(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  for (std::string variable; std::getline(file, variable, '\0');) {
    if (variable.starts_with("OMPI_COMM_WORLD_RANK=")) return true;
  }
  return false;
}

void print_line(const std::string& text) { std::fprintf(stderr, "ronderun: %s\n", text.c_str()); }

// The terminal sends Ctrl-C to every process of its foreground group.
bool owns_terminal() { return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp(); }

// Blocks the signals we wait for, as long as it lives.
// Thread safety: none; for programs of one thread.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&waited_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
      sigaddset(&waited_, signal);
    }
    // nohup asks for SIGHUP to stay ignored.
    struct sigaction action {};
    if (sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
      sigdelset(&waited_, SIGHUP);
    }
    // A parent may have left SIGCHLD ignored; then there would be no exit code to read.
    std::signal(SIGCHLD, SIG_DFL);
    // A write to a reader that is gone must be an error here, and kill the ranks as ever.
    before_pipe_ = std::signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &waited_, &before_);
    descriptor_ = signalfd(-1, &waited_, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~BlockedSignals() {
    close(descriptor_);
    std::signal(SIGPIPE, before_pipe_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  [[nodiscard]] bool ready() const { return descriptor_ >= 0; }

  void unblock_in_child() const {
    std::signal(SIGPIPE, before_pipe_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  // Returns the next signal, or 0 when `patience` is over or `streams` had something to do.
  int wait(Nanoseconds patience, Streams& streams, bool* from_kernel) const {
    std::vector<pollfd> entries{{descriptor_, POLLIN, 0}};
    streams.add_to(entries);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    const int timeout = static_cast<int>(std::min<std::int64_t>(left, kLongestPollMs));
    if (poll(entries.data(), entries.size(), timeout) <= 0) return 0;
    streams.serve(entries);
    if (entries.front().revents == 0) return 0;
    signalfd_siginfo info{};
    if (read(descriptor_, &info, sizeof info) != sizeof info) return 0;
    *from_kernel = info.ssi_code == SI_KERNEL;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t waited_{};
  sigset_t before_{};
  void (*before_pipe_)(int) = SIG_DFL;
  int descriptor_ = -1;
};

// Runs in the forked child; returns only by failing, with an errno.
int become(const std::vector<char*>& argv, const BlockedSignals& signals, bool own_group,
           int error_end, pid_t parent) {
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
  Job(Streams& streams, const base::Clock& clock, Nanoseconds grace)
      : streams_(streams), clock_(clock), grace_(grace) {}

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
        kill(mpirun_, signal);
      } else if (signal != 0) {
        stop(signal, from_kernel);
      } else if (stopping() && clock_.now() >= kill_at_) {
        print_line("the ranks did not end in time: killing them");
        kill_all();
      }
      if (!stopping() && streams_.reader_gone()) stop(SIGPIPE, false);
    }
    if (outcome_.exit_code != 0 || stopping()) kill_all();
    streams_.finish(clock_);
    if (!stopping() && streams_.reader_gone()) outcome_.interrupted = SIGPIPE;
    outcome_.reader_gone = outcome_.interrupted == SIGPIPE;
    if (stopping()) outcome_.exit_code = kSignalBase + outcome_.interrupted;
    return outcome_;
  }

 private:
  [[nodiscard]] bool stopping() const { return outcome_.interrupted != 0; }

  // A job may take any time, its end may not.
  [[nodiscard]] Nanoseconds patience() const {
    if (!stopping()) return std::chrono::hours(1);
    return std::max(kill_at_ - clock_.now(), Nanoseconds(0));
  }

  void stop(int signal, bool from_kernel) {
    const Instant now = clock_.now();
    if (!stopping()) {
      outcome_.interrupted = signal;
      stopped_at_ = now;
      kill_at_ = clock_.after(grace_);
      if (signal != SIGPIPE) {
        print_line(std::string("SIG") + sigabbrev_np(signal) + ": ending all ranks");
      }
      if (signal == SIGQUIT) {
        kill_all();
        return;
      }
      ask_ranks();
      if (own_group_ || signal != SIGINT || !from_kernel) {
        // Otherwise the terminal has sent SIGINT to mpirun as well, and a second one would make it
        // abandon its ranks.
        kill(mpirun_, SIGTERM);
      }
    } else if (now - stopped_at_ >= kSameRequest) {
      print_line("killing all ranks");
      kill_all();
    }
  }

  // mpirun waits a second before it passes SIGTERM on, and then follows it with SIGKILL at once: a
  // rank that wants to tidy up has to be notified earlier. This reaches the ranks of this host
  // only.
  void ask_ranks() const {
    for (const pid_t child : children_of(mpirun_)) {
      if (is_rank(child)) kill(child, SIGTERM);
    }
  }

  // Collects the children that have ended; true if there were any.
  bool reap() {
    bool any = false;
    int status = 0;
    for (pid_t process = 0; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
      any = true;
      if (process != mpirun_) continue;
      ended_ = true;
      outcome_.exit_code = exit_code_of(status);
    }
    return any;
  }

  // Kills mpirun and all processes that it leaves to us, generation after generation.
  void kill_all() {
    const Instant deadline = clock_.after(kKillDeadline);
    if (!ended_) kill(mpirun_, SIGKILL);
    while (clock_.now() < deadline) {
      bool left = false;
      for (const pid_t child : children_of(getpid())) {
        if (strangers_.count(child) != 0) continue;
        left = true;
        kill(child, SIGKILL);
      }
      if (!reap() && !left) break;
      const timespec pause{0, static_cast<long>(kKillPause.count())};
      nanosleep(&pause, nullptr);
    }
    if (!ended_) {
      print_line("mpirun (process " + std::to_string(mpirun_) +
                 ") cannot be killed: leaving it running");
      ended_ = true;
    }
  }

  Streams& streams_;
  const base::Clock& clock_;
  const Nanoseconds grace_;
  const BlockedSignals signals_;
  std::set<pid_t> strangers_;  // children from before we started, which are not the job's
  pid_t mpirun_ = 0;
  bool own_group_ = false;
  bool ended_ = false;
  Instant stopped_at_{};
  Instant kill_at_{};
  Outcome outcome_;
};

}  // namespace

int exit_code_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return kSignalBase + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

Result<Outcome> run_to_end(std::span<const std::string> argv, Streams& streams,
                           const base::Clock& clock, Nanoseconds grace) {
  Job job(streams, clock, grace);
  RONDE_RETURN_IF_ERROR(job.start(argv));
  return job.wait();
}

std::string verdict(const Outcome& outcome, const Cause& cause, const std::string& host) {
  if (outcome.reader_gone) return "";
  if (outcome.interrupted != 0) {
    return std::string("the job was ended by SIG") + sigabbrev_np(outcome.interrupted);
  }
  if (outcome.exit_code == 0) return "";
  if (!cause.trouble.empty()) return cause.trouble;
  const int signal = outcome.exit_code - kSignalBase;
  const char* name = signal > 0 ? sigabbrev_np(signal) : nullptr;
  std::string who = "a rank";
  if (cause.rank.has_value()) {
    who = "rank " + std::to_string(*cause.rank);
    const std::string& place = cause.host.empty() ? host : cause.host;
    if (!place.empty()) who += " on host " + place;
  }
  if (name != nullptr) {
    return who + " was killed by SIG" + name + " (exit code " + std::to_string(outcome.exit_code) +
           ")";
  }
  if (!cause.rank.has_value()) who = "the job";
  return who + (cause.rank.has_value() ? " ended" : " failed") + " with exit code " +
         std::to_string(outcome.exit_code);
}

}  // namespace ronde::launcher
