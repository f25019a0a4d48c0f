// SPDX-License-Identifier: Apache-2.0
// Panels have logarithmic axes: time, bandwidth, and the ratio to Ronde where others ran too. Bars
// begin at 0, so that their lengths compare.
#include "examples/perf/report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "base/words/number_text.h"
#include "base/words/svg.h"

namespace ronde::perf {

namespace {

using base::number_text;
using base::Picture;

struct Style {
  std::string_view contender;
  std::string_view label;
  std::string_view colour;  // of a palette that colour-blind readers can tell apart
  std::string_view dash;
  double width;
};

constexpr std::array<Style, 6> kStyles{{
    {"memcpy", "memcpy by every rank", "#777777", "5 4", 1.6},
    {"line", "TCP alone", "#777777", "5 4", 1.6},
    {"mpi", "MPI as it comes", "#0072b2", "", 1.8},
    {"mpi-best", "MPI, best algorithm (segmented ring)", "#56b4e9", "", 1.8},
    {"ronde-flat", "Ronde, one flat tensor", "#e69f00", "", 1.8},
    {"ronde", "Ronde", "#d55e00", "", 3.0},  // last, so that it lies on top
}};
constexpr const char* kTitle = "font-size=\"18\" font-weight=\"bold\"";
constexpr const char* kFooter = "font-size=\"12\" fill=\"#444444\"";

std::string fill_of(const Style& style) { return "fill=\"" + std::string(style.colour) + "\""; }

std::string stroke_of(const Style& style) {
  std::string stroke = "stroke=\"" + std::string(style.colour) + "\" stroke-width=\"" +
                       Picture::number(style.width) + "\"";
  if (style.dash.empty()) return stroke;
  return stroke + " stroke-dasharray=\"" + std::string(style.dash) + "\"";
}

std::string place_of(const Key& key) { return key.in_place ? ", in place" : ", out of place"; }

// The rows of one picture: those of the first key, of all sizes and contenders.
std::vector<const Summary*> rows_of_picture(std::span<const Summary> summaries) {
  const bool in_place =
      std::ranges::any_of(summaries, [](const Summary& each) { return each.key.in_place; });
  std::vector<const Summary*> rows;
  for (const Summary& each : summaries) {
    const Key& first = summaries.front().key;
    if (each.key.model == first.model && each.key.in_place == in_place &&
        each.key.dtype == first.dtype && each.key.op == first.op && each.key.bytes != 0 &&
        each.min_us > 0) {
      rows.push_back(&each);
    }
  }
  return rows;
}

constexpr double kPanelWidth = 460;
constexpr double kPanelHeight = 380;
constexpr double kLabelCharacter = 7;  // the width of one, at most on average
constexpr double kTop = 96;
constexpr double kLeft = 84;
constexpr double kGap = 104;
constexpr double kRight = 32;
constexpr std::size_t kMostLabels = 8;
constexpr double kHeight = kTop + kPanelHeight + 96;

constexpr double kBarsLeft = 300;
constexpr double kLength = 560;
constexpr double kBarsRight = 170;  // for the number behind a bar
constexpr double kBarsTop = 64;
constexpr double kRow = 44;
constexpr double kThickness = 24;
constexpr double kBelow = 60;

std::string size_label(double bytes) {
  constexpr std::array<const char*, 4> kUnits{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return number_text(bytes, 6) + " " + kUnits[unit];
}

// A logarithmic axis of `length` picture units, from 0.
struct Axis {
  double least;
  double most;
  double length;
  [[nodiscard]] double at(double value) const {
    return length * std::log(value / least) / std::log(most / least);
  }
};

Axis size_axis(const std::vector<const Summary*>& rows) {
  double least = static_cast<double>(rows.front()->key.bytes);
  double most = least;
  for (const Summary* row : rows) {
    least = std::min(least, static_cast<double>(row->key.bytes));
    most = std::max(most, static_cast<double>(row->key.bytes));
  }
  return {least / 1.3, most * 1.3, kPanelWidth};
}

// Draws a line at each size that was measured, and labels eight of them at most, the largest
// included.
void write_size_axis(Picture& picture, const Axis& axis, const std::set<std::uint64_t>& sizes) {
  const std::size_t step = (sizes.size() + kMostLabels - 1) / kMostLabels;
  std::size_t left = sizes.size();
  Picture::Lines grid;
  for (const std::uint64_t size : sizes) {
    const double x = axis.at(static_cast<double>(size));
    grid.push_back({x, 0, x, kPanelHeight});
    if (--left % step != 0) continue;
    const std::string label = size_label(static_cast<double>(size));
    // A label in the middle below its line, but never beyond the panel.
    const double half = kLabelCharacter / 2 * static_cast<double>(label.size());
    const bool first = x < half;
    const bool last = x > kPanelWidth - half;
    const double at = first ? 0 : last ? kPanelWidth : x;
    picture.text({at, kPanelHeight + 18,
                  first  ? "start"
                  : last ? "end"
                         : "middle",
                  "font-size=\"12\""},
                 label);
  }
  picture.lines(grid, "stroke=\"#e4e4e4\"");
  picture.text({kPanelWidth / 2, kPanelHeight + 40, "middle", "font-size=\"13\""},
               "size of the vector");
}

void write_value_axis(Picture& picture, const Axis& axis, std::string_view unit) {
  const int first = static_cast<int>(std::floor(std::log10(axis.least)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.most)));
  const bool labels_between = last - first <= 3;
  Picture::Lines powers;
  Picture::Lines between;
  for (int power = first; power <= last; ++power) {
    for (const double part : {1.0, 2.0, 5.0}) {
      const double value = part * std::pow(10.0, power);
      if (value < axis.least || value > axis.most) continue;
      const double y = kPanelHeight - axis.at(value);
      (part == 1.0 ? powers : between).push_back({0, y, kPanelWidth, y});
      if (part == 1.0 || labels_between) {
        picture.text({-8, y + 4, "end", "font-size=\"12\""}, number_text(value, 6));
      }
    }
  }
  picture.lines(powers, "stroke=\"#d0d0d0\"");
  picture.lines(between, "stroke=\"#efefef\"");
  picture.text({-kPanelHeight / 2, -56, "middle", "font-size=\"13\" transform=\"rotate(-90)\""},
               unit);
}

// What a panel shows of a row: the median, and the best and the worst repetition.
struct Values {
  double median;
  double best;
  double worst;
};

using ValuesOf = std::function<Values(const Summary&)>;

// Draws a line through the medians, a dot for each, and a bar from the best repetition to the
// worst.
void write_curve(Picture& picture, const std::vector<const Summary*>& rows, const Style& style,
                 const Axis& sizes, const Axis& values, const ValuesOf& values_of) {
  Picture::Points points;
  Picture::Lines ranges;
  for (const Summary* row : rows) {
    if (row->contender != style.contender) continue;
    const Values shown = values_of(*row);
    const double x = sizes.at(static_cast<double>(row->key.bytes));
    points.emplace_back(x, kPanelHeight - values.at(shown.median));
    ranges.push_back(
        {x, kPanelHeight - values.at(shown.best), x, kPanelHeight - values.at(shown.worst)});
  }
  if (points.empty()) return;
  picture.curve(points, stroke_of(style));
  picture.lines(ranges,
                "stroke=\"" + std::string(style.colour) + "\" stroke-width=\"1\" opacity=\"0.7\"");
  picture.dots(points, style.width, style.colour);
}

struct Panel {
  std::string_view title;
  std::string_view unit;
  ValuesOf values_of;
};

void write_panel(Picture& picture, double left, const Panel& panel,
                 const std::vector<const Summary*>& rows) {
  double least = panel.values_of(*rows.front()).median;
  double most = least;
  std::set<std::uint64_t> measured;
  for (const Summary* row : rows) {
    const Values shown = panel.values_of(*row);
    least = std::min({least, shown.median, shown.best, shown.worst});
    most = std::max({most, shown.median, shown.best, shown.worst});
    measured.insert(row->key.bytes);
  }
  const Axis values{least / 1.3, most * 1.3, kPanelHeight};
  const Axis sizes = size_axis(rows);
  picture.begin_group(left, kTop);
  picture.text({kPanelWidth / 2, -12, "middle", "font-size=\"15\" font-weight=\"bold\""},
               panel.title);
  write_size_axis(picture, sizes, measured);
  write_value_axis(picture, values, panel.unit);
  picture.rectangle(0, 0, kPanelWidth, kPanelHeight, "fill=\"none\" stroke=\"#444444\"");
  for (const Style& style : kStyles) {
    write_curve(picture, rows, style, sizes, values, panel.values_of);
  }
  picture.end_group();
}

std::vector<Panel> panels_of(const std::vector<const Summary*>& rows) {
  std::vector<Panel> panels;
  panels.push_back({"Time", "microseconds", [](const Summary& row) {
                      return Values{row.median_us, row.min_us, row.max_us};
                    }});
  panels.push_back({"Bandwidth (size / time)", "GB/s", [](const Summary& row) {
                      const double size = static_cast<double>(row.key.bytes) / 1e3;
                      return Values{size / row.median_us, size / row.min_us, size / row.max_us};
                    }});
  // A factor of two is small on axes that span four powers of ten, so it has a panel of its own.
  const bool others = std::any_of(rows.begin(), rows.end(), [](const Summary* row) {
    return row->contender != kRonde && row->ratio_min > 0;
  });
  if (others) {
    panels.push_back(
        {"Time / Ronde's time", "ratio; above 1 Ronde is faster",
         [](const Summary& row) { return Values{row.ratio, row.ratio_max, row.ratio_min}; }});
  }
  return panels;
}

void write_legend(Picture& picture, const std::vector<const Summary*>& rows) {
  double x = kLeft;
  for (auto style = kStyles.rbegin(); style != kStyles.rend(); ++style) {
    const bool there = std::any_of(rows.begin(), rows.end(), [style](const Summary* row) {
      return row->contender == style->contender;
    });
    if (!there) continue;
    picture.line(x, 52, x + 28, 52, stroke_of(*style));
    picture.circle(x + 14, 52, style->width, fill_of(*style));
    picture.text({x + 36, 57, "start", "font-size=\"14\""}, style->label);
    x += 36 + 28 + 7.6 * static_cast<double>(style->label.size());
  }
}

// Time and range of one contender.
void write_bar(Picture& picture, const Summary& row, double y, double per_us) {
  const auto known = std::ranges::find(kStyles, row.contender, &Style::contender);
  const Style style =
      known != kStyles.end() ? *known : Style{row.contender, row.contender, "#777777", "", 1.8};
  const bool ours = row.contender == kRonde;
  const double length = row.median_us * per_us;
  const double middle = y + kThickness / 2;
  picture.text({kBarsLeft - 10, middle + 5, "end", "font-size=\"14\""},
               ours && row.tensors > 1 ? "Ronde, tensor by tensor" : style.label);
  picture.rectangle(kBarsLeft, y, length, kThickness, fill_of(style));
  picture.line(kBarsLeft + row.min_us * per_us, middle, kBarsLeft + row.max_us * per_us, middle,
               "stroke=\"#222222\" stroke-width=\"1.5\"");
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), ours ? "%.1f ms" : "%.1f ms (%.2f x)",
                row.median_us / 1e3, row.ratio);
  picture.text({kBarsLeft + std::max(length, row.max_us * per_us) + 8, middle + 5, "start",
                "font-size=\"13\""},
               text.data());
}

}  // namespace

std::string plot(std::span<const Summary> summaries, const std::string& machine) {
  const std::vector<const Summary*> rows = rows_of_picture(summaries);
  const std::vector<Panel> panels = rows.empty() ? std::vector<Panel>() : panels_of(rows);
  const auto count = static_cast<double>(std::max<std::size_t>(panels.size(), 2));
  Picture picture(kLeft + count * kPanelWidth + (count - 1) * kGap + kRight, kHeight);
  if (!rows.empty()) {
    const Key& key = rows.front()->key;
    picture.text({kLeft, 28, "start", kTitle}, key.operation + " of " + key.dtype +
                                                   (key.op == "none" ? "" : ", " + key.op) +
                                                   place_of(key));
    write_legend(picture, rows);
    double left = kLeft;
    for (const Panel& panel : panels) {
      write_panel(picture, left, panel, rows);
      left += kPanelWidth + kGap;
    }
  }
  picture.text({kLeft, kHeight - 26, "start", kFooter}, machine);
  picture.text({kLeft, kHeight - 10, "start", kFooter},
               "Medians over the repetitions of the p50 of the slowest rank; bars from the best "
               "repetition to the worst. All axes logarithmic.");
  return picture.svg();
}

std::string bars(std::span<const Summary> summaries, const std::string& machine) {
  const std::vector<const Summary*> rows = rows_of_picture(summaries);
  const double height = kBarsTop + kRow * static_cast<double>(rows.size()) + kBelow;
  Picture picture(kBarsLeft + kLength + kBarsRight, height);
  if (!rows.empty()) {
    const Key& key = rows.front()->key;
    picture.text({20, 32, "start", kTitle},
                 "Gradients of " + key.model + ", " + key.dtype + ", " + key.op + place_of(key));
    double longest = 0;
    for (const Summary* row : rows) longest = std::max({longest, row->median_us, row->max_us});
    double y = kBarsTop;
    for (const Summary* row : rows) {
      write_bar(picture, *row, y, kLength / longest);
      y += kRow;
    }
  }
  picture.text({20, height - 28, "start", kFooter}, machine);
  picture.text({20, height - 12, "start", kFooter},
               "Medians over the repetitions of the p50 of the slowest rank; thin lines from the "
               "best repetition to the worst; in brackets the time over Ronde's.");
  return picture.svg();
}

}  // namespace ronde::perf
