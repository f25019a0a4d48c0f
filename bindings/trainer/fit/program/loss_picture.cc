// SPDX-License-Identifier: Apache-2.0
// Drawing a loss curve.
#include <algorithm>
#include <cstddef>

#include "base/words/svg.h"
#include "bindings/trainer/fit/program/training.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

std::string loss_picture(std::span<const double> losses) {
  constexpr double kWidth = 640;
  constexpr double kHeight = 400;
  constexpr double kEdge = 60;  // room for numbers left and below
  const std::string small = "font-size=\"13\"";
  const double most = losses.empty() ? 1.0 : std::max(1e-12, *std::ranges::max_element(losses));
  const double steps = losses.size() > 1 ? static_cast<double>(losses.size() - 1) : 1.0;
  const auto y_of = [most](double loss) {
    return kHeight - kEdge - (kHeight - 2 * kEdge) * loss / most;
  };
  base::Picture picture(kWidth, kHeight);
  for (int tick = 0; tick <= 4; ++tick) {
    const double loss = most * tick / 4;
    picture.line(kEdge, y_of(loss), kWidth - kEdge, y_of(loss), "stroke=\"#ddd\"");
    picture.text({kEdge - 8, y_of(loss) + 4, "end", small}, base::number_text(loss, 3));
  }
  const std::size_t each = std::max<std::size_t>(1, losses.size() / 10);
  base::Picture::Points points;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double x = kEdge + (kWidth - 2 * kEdge) * static_cast<double>(i) / steps;
    points.emplace_back(x, y_of(losses[i]));
    if (i % each != 0) continue;
    picture.text({x, kHeight - 40, "middle", small}, std::to_string(i + 1));
  }
  picture.curve(points, "stroke=\"#1f5fbf\" stroke-width=\"2\"");
  for (const auto& [x, y] : points) picture.circle(x, y, 3, "fill=\"#1f5fbf\"");
  picture.text({kWidth / 2, kHeight - 15, "middle", small}, "epoch");
  picture.text({kEdge, 30, "start", small}, "training loss, mean over all samples");
  return picture.svg();
}

}  // namespace ronde::trainer
