// SPDX-License-Identifier: Apache-2.0
// A signalfd, so that one poll() waits for signals and for output.
#include "launcher/signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <vector>

namespace ronde::launcher {

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
  descriptor_ = base::FileDescriptor(signalfd(-1, &waited_, SFD_CLOEXEC | SFD_NONBLOCK));
}

Signals::~Signals() {
  descriptor_.reset();
  std::signal(SIGPIPE, before_pipe_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Signals::unblock_in_child() const {
  std::signal(SIGPIPE, before_pipe_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::next() const {
  signalfd_siginfo info{};
  if (read(fd(), &info, sizeof info) != sizeof info) return 0;
  return static_cast<int>(info.ssi_signo);
}

int Signals::sleep(base::Nanoseconds pause, Output& output, const base::Clock& clock) const {
  const base::Instant end = clock.after(pause);
  while (clock.now() < end) {
    std::vector<pollfd> entries{{fd(), POLLIN, 0}};
    output.add_to(entries);
    if (poll(entries.data(), entries.size(), base::poll_milliseconds(clock, end)) <= 0) continue;
    output.serve(entries);
    for (int signal = 0; (signal = next()) != 0;) {
      if (signal != SIGCHLD && signal != SIGUSR1 && signal != SIGUSR2) return signal;
    }
  }
  return 0;
}

}  // namespace ronde::launcher
