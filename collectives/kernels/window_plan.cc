// SPDX-License-Identifier: Apache-2.0
// The arithmetic of windows and pieces, in lines, without products that could overflow.
#include "collectives/kernels/window_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/numbers.h"

namespace ronde::collectives {

// No product in this function is larger than `value`.
std::int64_t share(std::int64_t value, std::int64_t part, std::int64_t whole) {
  return value / whole * part + std::min(value % whole, part);
}

WindowPlan::WindowPlan(std::int64_t elements, std::int64_t element_bytes, std::int32_t ranks,
                       std::int64_t piece_bytes)
    : elements_(elements),
      per_line_(kLine / element_bytes),
      ranks_(ranks),
      lines_(base::ceil_div(elements, per_line_)),
      piece_lines_(std::max<std::int64_t>(piece_bytes / kLine, 1)),
      windows_(base::ceil_div(lines_, ranks_ * piece_lines_)) {
  base::check(elements >= 0 && ranks > 0 && kLine % element_bytes == 0, "WindowPlan: a vector");
}

std::int64_t WindowPlan::line_of_window(std::int64_t window) const {
  return share(lines_, window, windows_);
}

std::int64_t WindowPlan::element_of_line(std::int64_t line) const {
  return std::min(line * per_line_, elements_);
}

ElementRange WindowPlan::window(std::int64_t window) const {
  return {element_of_line(line_of_window(window)), element_of_line(line_of_window(window + 1))};
}

ElementRange WindowPlan::piece(std::int64_t window, std::int32_t owner) const {
  const std::int64_t first = line_of_window(window);
  const std::int64_t lines = line_of_window(window + 1) - first;
  return {element_of_line(first + share(lines, owner, ranks_)),
          element_of_line(first + share(lines, owner + 1, ranks_))};
}

}  // namespace ronde::collectives
