// SPDX-License-Identifier: Apache-2.0
// What a person sees of a training run: a bar on a terminal, a line per epoch everywhere.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

namespace ronde::trainer {

// Seconds since some fixed point, never backwards.
using Clock = std::function<double()>;
double steady_seconds();

struct EpochPosition {
  std::size_t epoch = 0;  // from 0
  std::size_t epochs = 0;
  std::size_t images = 0;  // done in this epoch, by all ranks
  std::size_t images_per_epoch = 0;
};

// One line such as "epoch 2/5 [=====>    ]  55 %  61234 images/s  12 s left". Of the
// images, those before were done by an earlier run. Pure.
std::string progress_bar(const EpochPosition& position, double elapsed_seconds,
                         double images_before = 0.0);
// A length of time for a person: "12 s", "3 min 05 s", "2 h 07 min". Pure.
std::string duration_text(double seconds);

// Thread safety: belongs to one thread.
class Progress {
 public:
  // `lines` gets a line per epoch, `bar` (a terminal) the bar; null: nothing. The streams must
  // outlive this object.
  Progress(std::ostream* lines, std::ostream* bar, Clock clock = steady_seconds);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // Takes the bar away, so that whatever is printed next has a line of its own.
  ~Progress();

  // Training begins, or goes on, here.
  void start(const EpochPosition& position = {});
  void batch_done(const EpochPosition& position);
  void epoch_done(const EpochPosition& position, double loss);
  // Since start().
  [[nodiscard]] double seconds() const { return clock_() - start_; }

 private:
  void clear_bar();

  std::ostream* lines_;
  std::ostream* bar_;
  Clock clock_;
  double start_ = 0.0;
  double epoch_start_ = 0.0;
  double last_drawn_ = 0.0;
  double images_before_ = 0.0;           // of all epochs, by an earlier run
  std::size_t epoch_images_before_ = 0;  // of this epoch
  bool drawn_ = false;
};

}  // namespace ronde::trainer
