// SPDX-License-Identifier: Apache-2.0
#include "examples/perf/report/svg.h"

#include <cstdio>

namespace ronde::perf::svg {

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

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

std::string begin(double width, double height) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" +
         number(height) + "\" viewBox=\"0 0 " + number(width) + " " + number(height) +
         "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n" +
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
}

}  // namespace ronde::perf::svg
