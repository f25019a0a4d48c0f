// SPDX-License-Identifier: Apache-2.0
// The signals that make a training save a checkpoint, or save one and exit.
#pragma once

namespace ronde::trainer {

// While an object of this class lives, SIGTERM and SIGUSR2 (which Open MPI's mpirun passes on to
// its ranks, as it does SIGUSR1) request a stop, and SIGUSR1 requests a save. A second SIGTERM, not
// of the same moment, ends the process at once. The requests are the process's: where several
// replicas share one, each has an object, and all of them see a request. In a forked child the
// signals have their default actions.
//
// Thread safety: an object belongs to the thread that made it; signals may arrive on any.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // The last one restores the previous handlers.
  ~StopSignals();

  // Whether a stop was requested; never reset.
  [[nodiscard]] bool stop_asked() const noexcept;
  // Whether a save was requested since the last call.
  [[nodiscard]] bool take_save_asked() noexcept;

 private:
  unsigned saves_seen_ = 0;
};

}  // namespace ronde::trainer
