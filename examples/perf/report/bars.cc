// SPDX-License-Identifier: Apache-2.0
// The bars begin at 0, so that their lengths compare.
#include "examples/perf/report/bars.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "examples/perf/report/svg.h"

namespace ronde::perf {

namespace {

constexpr double kBarsLeft = 300;
constexpr double kLength = 560;
constexpr double kBarsRight = 170;  // for the number behind a bar
constexpr double kBarsTop = 64;
constexpr double kRow = 44;
constexpr double kThickness = 24;
constexpr double kBelow = 60;

// One row for each contender, in the order in which they were measured.
std::vector<const Summary*> rows_of_model(std::span<const Summary> summaries) {
  bool in_place = false;
  for (const Summary& each : summaries) in_place = in_place || each.key.in_place;
  std::vector<const Summary*> rows;
  for (const Summary& each : summaries) {
    const Key& first = summaries.front().key;
    if (each.key.model == first.model && each.key.in_place == in_place &&
        each.key.dtype == first.dtype && each.key.op == first.op && each.min_us > 0) {
      rows.push_back(&each);
    }
  }
  return rows;
}

svg::Style style_of(const std::string& contender) {
  for (const svg::Style& style : svg::kStyles) {
    if (style.contender == contender) return style;
  }
  return {contender, contender, "#777777", "", 1.8};
}

std::string number_text(const Summary& row) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), row.contender == kRonde ? "%.1f ms" : "%.1f ms (%.2f x)",
                row.median_us / 1e3, row.ratio);
  return text.data();
}

void write_bar(std::string& picture, const Summary& row, double y, double per_us) {
  const svg::Style style = style_of(row.contender);
  const double length = row.median_us * per_us;
  svg::write_text(
      picture, {kBarsLeft - 10, y + kThickness / 2 + 5, "end", "font-size=\"14\""},
      row.contender == kRonde && row.tensors > 1 ? "Ronde, tensor by tensor" : style.label);
  picture += "<rect x=\"" + svg::number(kBarsLeft) + "\" y=\"" + svg::number(y) + "\" width=\"" +
             svg::number(length) + "\" height=\"" + svg::number(kThickness) + "\" fill=\"" +
             std::string(style.colour) + "\"/>\n";
  const double middle = y + kThickness / 2;
  svg::write_line(picture, kBarsLeft + row.min_us * per_us, middle, kBarsLeft + row.max_us * per_us,
                  middle, "stroke=\"#222222\" stroke-width=\"1.5\"");
  svg::write_text(picture,
                  {kBarsLeft + std::max(length, row.max_us * per_us) + 8, middle + 5, "start",
                   "font-size=\"13\""},
                  number_text(row));
}

}  // namespace

std::string bars(std::span<const Summary> summaries, const std::string& machine) {
  const std::vector<const Summary*> rows = rows_of_model(summaries);
  const double height = kBarsTop + kRow * static_cast<double>(rows.size()) + kBelow;
  std::string picture = svg::begin(kBarsLeft + kLength + kBarsRight, height);
  if (!rows.empty()) {
    const Summary& first = *rows.front();
    svg::write_text(picture, {20, 32, "start", "font-size=\"18\" font-weight=\"bold\""},
                    "Gradients of " + first.key.model + ", " + first.key.dtype + ", " +
                        first.key.op + (first.key.in_place ? ", in place" : ", out of place"));
    double longest = 0;
    for (const Summary* row : rows) longest = std::max({longest, row->median_us, row->max_us});
    double y = kBarsTop;
    for (const Summary* row : rows) {
      write_bar(picture, *row, y, kLength / longest);
      y += kRow;
    }
  }
  svg::write_text(picture, {20, height - 28, "start", "font-size=\"12\" fill=\"#444444\""},
                  machine);
  svg::write_text(
      picture, {20, height - 12, "start", "font-size=\"12\" fill=\"#444444\""},
      "Medians over the repetitions of the p50 of the slowest rank; thin lines from the "
      "best repetition to the worst; in brackets the time over Ronde's.");
  picture += "</svg>\n";
  return picture;
}

}  // namespace ronde::perf
