// SPDX-License-Identifier: Apache-2.0
// Drawing a loss curve.
#include "examples/support/loss_plot.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace ronde::examples {

namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 400;
constexpr double kEdge = 60;  // room for numbers left and below

std::string formatted(const char* format, double a, double b, double value) {
  char text[256];
  std::snprintf(text, sizeof text, format, a, b, value);
  return text;
}

}  // namespace

std::string loss_picture(std::span<const double> losses) {
  const double most = losses.empty() ? 1.0 : std::max(1e-12, *std::ranges::max_element(losses));
  const auto x_of = [&](std::size_t i) {
    const double steps = losses.size() > 1 ? static_cast<double>(losses.size() - 1) : 1.0;
    return kEdge + (kWidth - 2 * kEdge) * static_cast<double>(i) / steps;
  };
  const auto y_of = [&](double loss) {
    return kHeight - kEdge - (kHeight - 2 * kEdge) * loss / most;
  };
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" "
      "font-size=\"%.0f\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight, 13);
  for (int tick = 0; tick <= 4; ++tick) {
    const double loss = most * tick / 4;
    svg += formatted("<line x1=\"60\" x2=\"580\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>",
                     y_of(loss), y_of(loss), 0);
    svg += formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", kEdge - 8,
                     y_of(loss) + 4, loss);
  }
  const std::size_t each = std::max<std::size_t>(1, losses.size() / 10);
  std::string points;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    points += formatted("%.1f,%.1f ", x_of(i), y_of(losses[i]), 0);
    if (i % each != 0) continue;
    svg += formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f</text>\n", x_of(i),
                     kHeight - kEdge + 20, static_cast<double>(i + 1));
  }
  svg +=
      "<polyline fill=\"none\" stroke=\"#1f5fbf\" stroke-width=\"2\" points=\"" + points + "\"/>\n";
  for (std::size_t i = 0; i < losses.size(); ++i) {
    svg += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.0f\" fill=\"#1f5fbf\"/>", x_of(i),
                     y_of(losses[i]), 3);
  }
  svg += formatted("\n<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">epoch</text>", kWidth / 2,
                   kHeight - 15, 0);
  svg += "<text x=\"60\" y=\"30\">training loss, mean over all samples</text>\n</svg>\n";
  return svg;
}

void plot_losses(const std::string& file, std::span<const double> losses) {
  std::ofstream out(file);
  out << loss_picture(losses) << std::flush;
  if (!out) {
    throw std::runtime_error("--plot " + file +
                             ": cannot be written: " + std::generic_category().message(errno) +
                             ": give a file in a folder "
                             "that exists and has room");
  }
}

}  // namespace ronde::examples
