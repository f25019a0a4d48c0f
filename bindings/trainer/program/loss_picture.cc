// SPDX-License-Identifier: Apache-2.0
// Drawing a loss curve.
#include <algorithm>
#include <cstddef>

#include "bindings/trainer/program/training.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 400;
constexpr double kEdge = 60;  // room for numbers left and below

}  // namespace

std::string loss_picture(std::span<const double> losses) {
  const double most = losses.empty() ? 1.0 : std::max(1e-12, *std::ranges::max_element(losses));
  const double steps = losses.size() > 1 ? static_cast<double>(losses.size() - 1) : 1.0;
  const auto y_of = [most](double loss) {
    return kHeight - kEdge - (kHeight - 2 * kEdge) * loss / most;
  };
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 400\" "
      "font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (int tick = 0; tick <= 4; ++tick) {
    const double loss = most * tick / 4;
    svg += formatted("<line x1=\"60\" x2=\"580\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>",
                     y_of(loss), y_of(loss));
    svg += formatted("<text x=\"52.0\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n",
                     y_of(loss) + 4, loss);
  }
  const std::size_t each = std::max<std::size_t>(1, losses.size() / 10);
  std::string points;
  std::string dots;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double x = kEdge + (kWidth - 2 * kEdge) * static_cast<double>(i) / steps;
    points += formatted("%.1f,%.1f ", x, y_of(losses[i]));
    dots +=
        formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#1f5fbf\"/>", x, y_of(losses[i]));
    if (i % each != 0) continue;
    svg += formatted("<text x=\"%.1f\" y=\"360.0\" text-anchor=\"middle\">%zu</text>\n", x, i + 1);
  }
  return svg + "<polyline fill=\"none\" stroke=\"#1f5fbf\" stroke-width=\"2\" points=\"" + points +
         "\"/>\n" + dots +
         "\n<text x=\"320\" y=\"385\" text-anchor=\"middle\">epoch</text>"
         "<text x=\"60\" y=\"30\">training loss, mean over all samples</text>\n</svg>\n";
}

}  // namespace ronde::trainer
