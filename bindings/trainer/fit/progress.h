// SPDX-License-Identifier: Apache-2.0
// What a person sees of a training run: a bar on a terminal, a line per epoch everywhere.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

#include "bindings/trainer/fit/callbacks.h"
#include "bindings/trainer/fit/replica.h"

namespace ronde::trainer {

using Clock = std::function<double()>;

// One line such as "epoch 2/5 [=====>    ]  55 %  61234 images/s  12 s left". Of the samples, those
// before were done by an earlier run. Pure.
std::string progress_bar(const TrainingState& state, double elapsed_seconds,
                         double samples_before = 0.0);
// A length of time for a person: "12 s", "3 min 05 s", "2 h 07 min". Pure.
std::string duration_text(double seconds);

class Progress final : public Callback {
 public:
  // `lines` gets a line per epoch, `bar` (a terminal) the bar; null: nothing. The streams must
  // outlive this object.
  Progress(std::ostream* lines, std::ostream* bar, Clock clock = steady_seconds);
  // Takes the bar away, so that whatever is printed next has a line of its own.
  ~Progress() override;

  void on_start(TrainingState& state) override;
  void on_step(TrainingState& state) override;
  void on_epoch(TrainingState& state) override;

 private:
  void clear_bar();

  std::ostream* lines_;
  std::ostream* bar_;
  Clock clock_;
  double start_ = 0.0;
  double epoch_start_ = 0.0;
  double last_drawn_ = 0.0;
  double samples_before_ = 0.0;           // of all epochs, by an earlier run
  std::size_t epoch_samples_before_ = 0;  // of this epoch
  bool drawn_ = false;
};

}  // namespace ronde::trainer
