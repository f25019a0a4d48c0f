// SPDX-License-Identifier: Apache-2.0
// The signals that ronderun hears while it runs jobs, and between them.
#pragma once

#include <csignal>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "launcher/output.h"

namespace ronde::launcher {

// Blocks the signals we wait for, as long as it lives, so that none is lost between two jobs.
// Thread safety: none; for programs of one thread.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Readable when one has come; -1: the system has none to give.
  [[nodiscard]] int fd() const { return descriptor_.get(); }
  // The next one that has come, or 0.
  [[nodiscard]] int next() const;

  // For a forked child, before it becomes another program.
  void unblock_in_child() const;

  // Waits for `pause`, with no job running. Returns the signal that asks ronderun to stop, or 0.
  // `output` goes on printing.
  [[nodiscard]] int sleep(base::Nanoseconds pause, Output& output, const base::Clock& clock) const;

 private:
  sigset_t waited_{};
  sigset_t before_{};
  void (*before_pipe_)(int) = SIG_DFL;
  base::FileDescriptor descriptor_;
};

}  // namespace ronde::launcher
