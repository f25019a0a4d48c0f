// SPDX-License-Identifier: Apache-2.0
// The signals that ronderun hears while it runs jobs, and between them.
#pragma once

#include <csignal>

#include "base/clock.h"
#include "launcher/streams.h"

namespace ronde::launcher {

// Blocks the signals we wait for, as long as it lives, so that none is lost between two jobs.
// Thread safety: none; for programs of one thread.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] bool ready() const { return descriptor_ >= 0; }

  // For a forked child, before it becomes another program.
  void unblock_in_child() const;

  // Returns the next signal, or 0 when `patience` is over or `streams` had something to do.
  int wait(base::Nanoseconds patience, Streams& streams, bool* from_kernel) const;

  // Waits for `pause`, with no job running. Returns the signal that asks ronderun to stop, or 0.
  // `output` goes on printing.
  [[nodiscard]] int sleep(base::Nanoseconds pause, Output& output, const base::Clock& clock) const;

 private:
  sigset_t waited_{};
  sigset_t before_{};
  void (*before_pipe_)(int) = SIG_DFL;
  int descriptor_ = -1;
};

}  // namespace ronde::launcher
