// SPDX-License-Identifier: Apache-2.0
// The signals with which a training is asked to save itself, or to save itself and end.
#pragma once

namespace ronde::trainer {

// While an object of this class lives, SIGTERM and SIGUSR2 (which Open MPI's mpirun passes on to
// its ranks, as it does SIGUSR1) are notes to stop, and SIGUSR1 is one to save. A second SIGTERM,
// not of the same moment, ends the process, whatever it waits for. The notes are the process's:
// where several replicas live in one, each has an object, and all of them are asked. In a child
// that was forked the signals do what they do by default.
//
// Thread safety: an object belongs to the thread that made it; notes may come to any.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // The last one puts the handlers back that were there before.
  ~StopSignals();

  // Whether a stop was asked for; it stays so.
  [[nodiscard]] bool stop_asked() const noexcept;
  // Whether a save was asked for since the last call.
  [[nodiscard]] bool take_save_asked() noexcept;

 private:
  unsigned saves_seen_ = 0;
};

}  // namespace ronde::trainer
