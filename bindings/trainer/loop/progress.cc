// SPDX-License-Identifier: Apache-2.0
// Drawing progress: see progress.h.
#include "bindings/trainer/loop/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

namespace ronde::trainer {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr std::size_t kBarWidth = 24;

double per_second(double count, double seconds) { return seconds > 0.0 ? count / seconds : 0.0; }

// How many images were trained on in all epochs until now.
double images_of(const EpochPosition& position) {
  return static_cast<double>(position.images_per_epoch) * static_cast<double>(position.epoch) +
         static_cast<double>(position.images);
}

}  // namespace

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

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

std::string progress_bar(const EpochPosition& position, double elapsed_seconds,
                         double images_before) {
  const double total =
      static_cast<double>(position.images_per_epoch) * static_cast<double>(position.epochs);
  const double done = images_of(position);
  const double share = total > 0.0 ? done / total : 1.0;
  const double rate = per_second(done - images_before, elapsed_seconds);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  std::string bar(std::min(filled, kBarWidth), '=');
  if (bar.size() < kBarWidth) bar += '>';
  bar.resize(kBarWidth, ' ');
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "] %3.0f %%  %.0f images/s  ", share * 100.0, rate);
  return "epoch " + std::to_string(position.epoch + 1) + "/" + std::to_string(position.epochs) +
         " [" + bar + numbers + duration_text(per_second(total - done, rate)) + " left";
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

void Progress::start(const EpochPosition& position) {
  start_ = epoch_start_ = last_drawn_ = clock_();
  images_before_ = images_of(position);
  epoch_images_before_ = position.images;
}

void Progress::batch_done(const EpochPosition& position) {
  if (bar_ == nullptr) return;
  const double now = clock_();
  if (now - last_drawn_ < kRedrawSeconds) return;
  last_drawn_ = now;
  drawn_ = true;
  *bar_ << '\r' << progress_bar(position, now - start_, images_before_) << "\x1b[K" << std::flush;
}

void Progress::epoch_done(const EpochPosition& position, double loss) {
  const double now = clock_();
  const double seconds = now - epoch_start_;
  epoch_start_ = now;
  const std::size_t before = std::exchange(epoch_images_before_, 0);
  if (lines_ == nullptr) return;
  clear_bar();
  char text[160];
  const double rate = per_second(static_cast<double>(position.images - before), seconds);
  std::snprintf(text, sizeof text, "epoch %zu/%zu: loss %.6f, %.0f images/s, %.1f s\n",
                position.epoch + 1, position.epochs, loss, rate, seconds);
  *lines_ << text << std::flush;
}

void Progress::clear_bar() {
  if (!drawn_) return;
  drawn_ = false;
  *bar_ << "\r\x1b[K" << std::flush;
}

}  // namespace ronde::trainer
