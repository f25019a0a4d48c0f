// SPDX-License-Identifier: Apache-2.0
// Draws panels with logarithmic axes: time, bandwidth, and the ratio to Ronde where others ran too.
#include "examples/perf/report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "examples/perf/report/svg.h"

namespace ronde::perf {

namespace {

using svg::number;
using svg::plain;
using svg::Style;
using svg::write_line;
using svg::write_text;

constexpr double kPanelWidth = 460;
constexpr double kPanelHeight = 380;
constexpr double kLabelCharacter = 7;  // the width of one, at most on average
constexpr double kTop = 96;
constexpr double kLeft = 84;
constexpr double kGap = 104;
constexpr double kRight = 32;
constexpr std::size_t kMostLabels = 8;
constexpr double kHeight = kTop + kPanelHeight + 96;

std::string size_label(double bytes) {
  constexpr std::array<const char*, 4> kUnits{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return plain(bytes) + " " + kUnits[unit];
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
void write_size_axis(std::string& picture, const Axis& axis, const std::set<std::uint64_t>& sizes) {
  const std::size_t step = (sizes.size() + kMostLabels - 1) / kMostLabels;
  std::size_t left = sizes.size();
  for (const std::uint64_t size : sizes) {
    const double x = axis.at(static_cast<double>(size));
    write_line(picture, x, 0, x, kPanelHeight, "stroke=\"#e4e4e4\"");
    if (--left % step != 0) continue;
    const std::string label = size_label(static_cast<double>(size));
    // A label in the middle below its line, but never beyond the panel.
    const double half = kLabelCharacter / 2 * static_cast<double>(label.size());
    const bool first = x < half;
    const bool last = x > kPanelWidth - half;
    const double at = first ? 0 : last ? kPanelWidth : x;
    write_text(picture,
               {at, kPanelHeight + 18,
                first  ? "start"
                : last ? "end"
                       : "middle",
                "font-size=\"12\""},
               label);
  }
  write_text(picture, {kPanelWidth / 2, kPanelHeight + 40, "middle", "font-size=\"13\""},
             "size of the vector");
}

void write_value_axis(std::string& picture, const Axis& axis, std::string_view unit) {
  const int first = static_cast<int>(std::floor(std::log10(axis.least)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.most)));
  const bool labels_between = last - first <= 3;
  for (int power = first; power <= last; ++power) {
    for (const double part : {1.0, 2.0, 5.0}) {
      const double value = part * std::pow(10.0, power);
      if (value < axis.least || value > axis.most) continue;
      const double y = kPanelHeight - axis.at(value);
      write_line(picture, 0, y, kPanelWidth, y,
                 part == 1.0 ? "stroke=\"#d0d0d0\"" : "stroke=\"#efefef\"");
      if (part == 1.0 || labels_between) {
        write_text(picture, {-8, y + 4, "end", "font-size=\"12\""}, plain(value));
      }
    }
  }
  write_text(picture,
             {-kPanelHeight / 2, -56, "middle", "font-size=\"13\" transform=\"rotate(-90)\""},
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
void write_curve(std::string& picture, const std::vector<const Summary*>& rows, const Style& style,
                 const Axis& sizes, const Axis& values, const ValuesOf& values_of) {
  const std::string colour(style.colour);
  std::string points;
  std::string marks;
  for (const Summary* row : rows) {
    if (row->contender != style.contender) continue;
    const Values shown = values_of(*row);
    const double x = sizes.at(static_cast<double>(row->key.bytes));
    const double y = kPanelHeight - values.at(shown.median);
    points += number(x) + "," + number(y) + " ";
    write_line(marks, x, kPanelHeight - values.at(shown.best), x,
               kPanelHeight - values.at(shown.worst),
               "stroke=\"" + colour + "\" stroke-width=\"1\" opacity=\"0.7\"");
    marks += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" +
             number(style.width) + "\" fill=\"" + colour + "\"/>\n";
  }
  if (points.empty()) return;
  picture += "<polyline fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"" +
             number(style.width) + "\"";
  if (!style.dash.empty()) picture += " stroke-dasharray=\"" + std::string(style.dash) + "\"";
  picture += " points=\"" + points + "\"/>\n" + marks;
}

struct Panel {
  std::string_view title;
  std::string_view unit;
  ValuesOf values_of;
};

void write_panel(std::string& picture, double left, const Panel& panel,
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
  picture += "<g transform=\"translate(" + number(left) + "," + number(kTop) + ")\">\n";
  write_text(picture, {kPanelWidth / 2, -12, "middle", "font-size=\"15\" font-weight=\"bold\""},
             panel.title);
  write_size_axis(picture, sizes, measured);
  write_value_axis(picture, values, panel.unit);
  picture += "<rect width=\"" + number(kPanelWidth) + "\" height=\"" + number(kPanelHeight) +
             "\" fill=\"none\" stroke=\"#444444\"/>\n";
  for (const Style& style : svg::kStyles) {
    write_curve(picture, rows, style, sizes, values, panel.values_of);
  }
  picture += "</g>\n";
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

void write_legend(std::string& picture, const std::vector<const Summary*>& rows) {
  double x = kLeft;
  for (auto style = svg::kStyles.rbegin(); style != svg::kStyles.rend(); ++style) {
    const bool there = std::any_of(rows.begin(), rows.end(), [style](const Summary* row) {
      return row->contender == style->contender;
    });
    if (!there) continue;
    std::string stroke = "stroke=\"" + std::string(style->colour) + "\" stroke-width=\"" +
                         number(style->width) + "\"";
    if (!style->dash.empty()) stroke += " stroke-dasharray=\"" + std::string(style->dash) + "\"";
    write_line(picture, x, 52, x + 28, 52, stroke);
    picture += "<circle cx=\"" + number(x + 14) + "\" cy=\"52.0\" r=\"" + number(style->width) +
               "\" fill=\"" + std::string(style->colour) + "\"/>\n";
    write_text(picture, {x + 36, 57, "start", "font-size=\"14\""}, style->label);
    x += 36 + 28 + 7.6 * static_cast<double>(style->label.size());
  }
}

// Returns the rows of one picture: those of the first key, of all sizes.
std::vector<const Summary*> rows_of_picture(std::span<const Summary> summaries) {
  std::vector<const Summary*> rows;
  bool in_place = false;
  for (const Summary& each : summaries) in_place = in_place || each.key.in_place;
  for (const Summary& each : summaries) {
    const Key& first = summaries.front().key;
    if (each.key.in_place != in_place || each.key.dtype != first.dtype || each.key.op != first.op ||
        each.key.bytes == 0 || !(each.min_us > 0)) {
      continue;
    }
    rows.push_back(&each);
  }
  return rows;
}

}  // namespace

std::string plot(std::span<const Summary> summaries, const std::string& machine) {
  const std::vector<const Summary*> rows = rows_of_picture(summaries);
  const std::vector<Panel> panels = rows.empty() ? std::vector<Panel>() : panels_of(rows);
  const auto count = static_cast<double>(std::max<std::size_t>(panels.size(), 2));
  std::string picture =
      svg::begin(kLeft + count * kPanelWidth + (count - 1) * kGap + kRight, kHeight);
  if (!rows.empty()) {
    const Key& key = rows.front()->key;
    write_text(picture, {kLeft, 28, "start", "font-size=\"18\" font-weight=\"bold\""},
               key.operation + " of " + key.dtype + (key.op == "none" ? "" : ", " + key.op) +
                   (key.in_place ? ", in place" : ", out of place"));
    write_legend(picture, rows);
    double left = kLeft;
    for (const Panel& panel : panels) {
      write_panel(picture, left, panel, rows);
      left += kPanelWidth + kGap;
    }
  }
  write_text(picture, {kLeft, kHeight - 26, "start", "font-size=\"12\" fill=\"#444444\""}, machine);
  write_text(picture, {kLeft, kHeight - 10, "start", "font-size=\"12\" fill=\"#444444\""},
             "Medians over the repetitions of the p50 of the slowest rank; bars from the best "
             "repetition to the worst. All axes logarithmic.");
  picture += "</svg>\n";
  return picture;
}

}  // namespace ronde::perf
