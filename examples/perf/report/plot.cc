// SPDX-License-Identifier: Apache-2.0
// Draws two panels with logarithmic axes; the SVG is written by hand, to need no library.
#include "examples/perf/report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

namespace ronde::perf {

namespace {

constexpr double kPanelWidth = 460;
constexpr double kPanelHeight = 380;
constexpr double kLabelCharacter = 7;  // the width of one, at most on average
constexpr double kTop = 96;
constexpr double kLeft = 84;
constexpr double kGap = 104;
constexpr double kWidth = kLeft + kPanelWidth + kGap + kPanelWidth + 32;
constexpr double kHeight = kTop + kPanelHeight + 96;

struct Style {
  std::string_view contender;
  std::string_view label;
  std::string_view colour;  // of a palette that colour-blind readers can tell apart
  std::string_view dash;
  double width;
};

constexpr std::array<Style, 5> kStyles{{
    {"memcpy", "memcpy by every rank", "#777777", "5 4", 1.6},
    {"line", "TCP alone", "#777777", "5 4", 1.6},
    {"mpi", "MPI as it comes", "#0072b2", "", 1.8},
    {"mpi-best", "MPI, best algorithm (segmented ring)", "#56b4e9", "", 1.8},
    {"ronde", "Ronde", "#d55e00", "", 3.0},  // last, so that it lies on top
}};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// Writes a number with no more digits than needed: 0.5, 20, 1000.
std::string plain(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char each : text) {
    switch (each) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += each;
    }
  }
  return result;
}

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

struct Text {
  double x;
  double y;
  std::string_view anchor;  // start, middle, end
  std::string_view extra;   // attributes
};

void write_text(std::string& svg, const Text& place, std::string_view text) {
  svg += "<text x=\"" + number(place.x) + "\" y=\"" + number(place.y) + "\" text-anchor=\"" +
         std::string(place.anchor) + "\" " + std::string(place.extra) + ">" + escaped(text) +
         "</text>\n";
}

void write_line(std::string& svg, double x1, double y1, double x2, double y2,
                const std::string& stroke) {
  svg += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" " + stroke + "/>\n";
}

Axis size_axis(const std::vector<const Summary*>& rows) {
  double least = static_cast<double>(rows.front()->key.bytes);
  double most = least;
  for (const Summary* row : rows) {
    least = std::min(least, static_cast<double>(row->key.bytes));
    most = std::max(most, static_cast<double>(row->key.bytes));
  }
  return {least / 1.3, most * 1.3, kPanelWidth};
}

// Labels powers of two, eight at most.
void write_size_axis(std::string& svg, const Axis& axis) {
  const int first = static_cast<int>(std::ceil(std::log2(axis.least)));
  const int last = static_cast<int>(std::floor(std::log2(axis.most)));
  const int step = std::max(1, (last - first + 8) / 8);
  for (int power = first; power <= last; power += step) {
    const double x = axis.at(std::ldexp(1.0, power));
    write_line(svg, x, 0, x, kPanelHeight, "stroke=\"#e4e4e4\"");
    const std::string label = size_label(std::ldexp(1.0, power));
    // A label in the middle below its line, but never beyond the panel.
    const double half = kLabelCharacter / 2 * static_cast<double>(label.size());
    const bool left = x < half;
    const bool right = x > kPanelWidth - half;
    const double at = left ? 0 : right ? kPanelWidth : x;
    write_text(svg,
               {at, kPanelHeight + 18,
                left    ? "start"
                : right ? "end"
                        : "middle",
                "font-size=\"12\""},
               label);
  }
  write_text(svg, {kPanelWidth / 2, kPanelHeight + 40, "middle", "font-size=\"13\""},
             "size of the vector");
}

void write_value_axis(std::string& svg, const Axis& axis, std::string_view unit) {
  const int first = static_cast<int>(std::floor(std::log10(axis.least)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.most)));
  const bool labels_between = last - first <= 3;
  for (int power = first; power <= last; ++power) {
    for (const double part : {1.0, 2.0, 5.0}) {
      const double value = part * std::pow(10.0, power);
      if (value < axis.least || value > axis.most) continue;
      const double y = kPanelHeight - axis.at(value);
      write_line(svg, 0, y, kPanelWidth, y,
                 part == 1.0 ? "stroke=\"#d0d0d0\"" : "stroke=\"#efefef\"");
      if (part == 1.0 || labels_between) {
        write_text(svg, {-8, y + 4, "end", "font-size=\"12\""}, plain(value));
      }
    }
  }
  write_text(svg, {-kPanelHeight / 2, -56, "middle", "font-size=\"13\" transform=\"rotate(-90)\""},
             unit);
}

// Draws a line through the medians, a dot for each, and a bar from the best repetition to the
// worst.
void write_curve(std::string& svg, const std::vector<const Summary*>& rows, const Style& style,
                 const Axis& sizes, const Axis& values,
                 const std::function<double(const Summary&, double)>& value) {
  const std::string colour(style.colour);
  std::string points;
  std::string marks;
  for (const Summary* row : rows) {
    if (row->contender != style.contender) continue;
    const double x = sizes.at(static_cast<double>(row->key.bytes));
    const double y = kPanelHeight - values.at(value(*row, row->median_us));
    points += number(x) + "," + number(y) + " ";
    write_line(marks, x, kPanelHeight - values.at(value(*row, row->min_us)), x,
               kPanelHeight - values.at(value(*row, row->max_us)),
               "stroke=\"" + colour + "\" stroke-width=\"1\" opacity=\"0.7\"");
    marks += "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" +
             number(style.width) + "\" fill=\"" + colour + "\"/>\n";
  }
  if (points.empty()) return;
  svg += "<polyline fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"" + number(style.width) +
         "\"";
  if (!style.dash.empty()) svg += " stroke-dasharray=\"" + std::string(style.dash) + "\"";
  svg += " points=\"" + points + "\"/>\n" + marks;
}

struct Panel {
  double left;
  std::string_view title;
  std::string_view unit;
  std::function<double(const Summary&, double)> value;  // from a time in microseconds
};

void write_panel(std::string& svg, const Panel& panel, const std::vector<const Summary*>& rows) {
  double least = panel.value(*rows.front(), rows.front()->median_us);
  double most = least;
  for (const Summary* row : rows) {
    for (const double us : {row->min_us, row->median_us, row->max_us}) {
      least = std::min(least, panel.value(*row, us));
      most = std::max(most, panel.value(*row, us));
    }
  }
  const Axis values{least / 1.3, most * 1.3, kPanelHeight};
  const Axis sizes = size_axis(rows);
  svg += "<g transform=\"translate(" + number(panel.left) + "," + number(kTop) + ")\">\n";
  write_text(svg, {kPanelWidth / 2, -12, "middle", "font-size=\"15\" font-weight=\"bold\""},
             panel.title);
  write_size_axis(svg, sizes);
  write_value_axis(svg, values, panel.unit);
  svg += "<rect width=\"" + number(kPanelWidth) + "\" height=\"" + number(kPanelHeight) +
         "\" fill=\"none\" stroke=\"#444444\"/>\n";
  for (const Style& style : kStyles) write_curve(svg, rows, style, sizes, values, panel.value);
  svg += "</g>\n";
}

void write_legend(std::string& svg, const std::vector<const Summary*>& rows) {
  double x = kLeft;
  for (auto style = kStyles.rbegin(); style != kStyles.rend(); ++style) {
    const bool there = std::any_of(rows.begin(), rows.end(), [style](const Summary* row) {
      return row->contender == style->contender;
    });
    if (!there) continue;
    std::string stroke = "stroke=\"" + std::string(style->colour) + "\" stroke-width=\"" +
                         number(style->width) + "\"";
    if (!style->dash.empty()) stroke += " stroke-dasharray=\"" + std::string(style->dash) + "\"";
    write_line(svg, x, 52, x + 28, 52, stroke);
    svg += "<circle cx=\"" + number(x + 14) + "\" cy=\"52.0\" r=\"" + number(style->width) +
           "\" fill=\"" + std::string(style->colour) + "\"/>\n";
    write_text(svg, {x + 36, 57, "start", "font-size=\"14\""}, style->label);
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
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) +
                    "\" height=\"" + number(kHeight) + "\" viewBox=\"0 0 " + number(kWidth) + " " +
                    number(kHeight) +
                    "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  const std::vector<const Summary*> rows = rows_of_picture(summaries);
  if (!rows.empty()) {
    const Key& key = rows.front()->key;
    write_text(svg, {kLeft, 28, "start", "font-size=\"18\" font-weight=\"bold\""},
               key.operation + " of " + key.dtype + (key.op == "none" ? "" : ", " + key.op) +
                   (key.in_place ? ", in place" : ", out of place"));
    write_legend(svg, rows);
    write_panel(
        svg, {kLeft, "Time", "microseconds", [](const Summary& /*row*/, double us) { return us; }},
        rows);
    write_panel(svg,
                {kLeft + kPanelWidth + kGap, "Bandwidth (size / time)", "GB/s",
                 [](const Summary& row, double us) {
                   return static_cast<double>(row.key.bytes) / (us * 1e3);
                 }},
                rows);
  }
  write_text(svg, {kLeft, kHeight - 26, "start", "font-size=\"12\" fill=\"#444444\""}, machine);
  write_text(svg, {kLeft, kHeight - 10, "start", "font-size=\"12\" fill=\"#444444\""},
             "Medians over the repetitions of the p50 of the slowest rank; bars from the best "
             "repetition to the worst. Both axes logarithmic.");
  svg += "</svg>\n";
  return svg;
}

}  // namespace ronde::perf
