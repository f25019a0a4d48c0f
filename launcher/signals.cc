// SPDX-License-Identifier: Apache-2.0
// A signalfd, so that one poll() waits for signals and for output.
#include "launcher/signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace ronde::launcher {

namespace {

constexpr std::int64_t kLongestPollMs = 3'600'000;

}  // namespace

Signals::Signals() {
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

Signals::~Signals() {
  close(descriptor_);
  std::signal(SIGPIPE, before_pipe_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Signals::unblock_in_child() const {
  std::signal(SIGPIPE, before_pipe_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::wait(base::Nanoseconds patience, Streams& streams, bool* from_kernel) const {
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

int Signals::sleep(base::Nanoseconds pause, Output& output, const base::Clock& clock) const {
  Streams none(output);
  const base::Instant end = clock.after(pause);
  for (base::Instant now = clock.now(); now < end; now = clock.now()) {
    bool from_kernel = false;
    const int signal = wait(end - now, none, &from_kernel);
    if (signal != 0 && signal != SIGCHLD && signal != SIGUSR1 && signal != SIGUSR2) return signal;
  }
  return 0;
}

}  // namespace ronde::launcher
