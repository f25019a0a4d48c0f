// SPDX-License-Identifier: Apache-2.0
// Drawing progress: see progress.h.
#include "bindings/trainer/fit/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr std::size_t kBarWidth = 24;

double per_second(double count, double seconds) { return seconds > 0.0 ? count / seconds : 0.0; }

// How many samples were trained on in all epochs until now.
double samples_of(const TrainingState& state) {
  return static_cast<double>(state.samples_per_epoch) * static_cast<double>(state.epoch) +
         static_cast<double>(state.samples);
}

}  // namespace

std::string duration_text(double seconds) {
  // Beyond this a number helps nobody, and would not fit into an integer.
  constexpr double kLongest = 1e6 * 3600.0;
  const long long whole = std::llround(std::clamp(seconds, 0.0, kLongest));
  char text[48];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%lld s", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  }
  return text;
}

std::string progress_bar(const TrainingState& state, double elapsed_seconds,
                         double samples_before) {
  const double total =
      static_cast<double>(state.samples_per_epoch) * static_cast<double>(state.epochs);
  const double done = samples_of(state);
  const double share = total > 0.0 ? done / total : 1.0;
  const double rate = per_second(done - samples_before, elapsed_seconds);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  std::string bar(std::min(filled, kBarWidth), '=');
  if (bar.size() < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  const std::string numbers = formatted("] %3.0f %%  %.0f images/s  ", share * 100.0, rate);
  return "epoch " + std::to_string(state.epoch + 1) + "/" + std::to_string(state.epochs) + " [" +
         bar + numbers + duration_text(per_second(total - done, rate)) + " left";
}

Progress::Progress(std::ostream* lines, std::ostream* bar, Clock clock)
    : lines_(lines), bar_(bar), clock_(std::move(clock)) {}

Progress::~Progress() {
  try {
    clear_bar();
  } catch (...) {
    drawn_ = false;  // a stream that throws: the bar stays, which hurts nobody
  }
}

void Progress::on_start(TrainingState& state) {
  start_ = epoch_start_ = last_drawn_ = clock_();
  samples_before_ = samples_of(state);
  epoch_samples_before_ = state.samples;
}

void Progress::on_step(TrainingState& state) {
  if (bar_ == nullptr) return;
  const double now = clock_();
  if (now - last_drawn_ < kRedrawSeconds) return;
  last_drawn_ = now;
  drawn_ = true;
  *bar_ << '\r' << progress_bar(state, now - start_, samples_before_) << "\x1b[K" << std::flush;
}

void Progress::on_epoch(TrainingState& state) {
  const double now = clock_();
  const double seconds = now - epoch_start_;
  epoch_start_ = now;
  const std::size_t before = std::exchange(epoch_samples_before_, 0);
  if (lines_ == nullptr) return;
  clear_bar();
  const double rate = per_second(static_cast<double>(state.samples - before), seconds);
  *lines_ << formatted("epoch %zu/%zu: ", state.epoch + 1, state.epochs)
          << (state.training.samples == 0.0 ? "trained by others"
                                            : formatted("loss %.6f", state.training.loss()));
  for (const auto& [name, sums] : state.training.watched) {
    *lines_ << ", " << name << ' ' << exact_text(state.training.mean(name));
  }
  *lines_ << formatted(", %.0f images/s, %.1f s\n", rate, seconds) << std::flush;
}

void Progress::clear_bar() {
  if (!drawn_) return;
  drawn_ = false;
  *bar_ << "\r\x1b[K" << std::flush;
}

}  // namespace ronde::trainer
