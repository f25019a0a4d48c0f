// SPDX-License-Identifier: Apache-2.0
// A picture as SVG, written by hand, to need no library. Headers alone. Pure.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ronde::base {

// Thread safety: a value.
class Picture {
 public:
  struct Text {
    double x;
    double y;
    std::string_view anchor;  // start, middle, end
    std::string_view extra;   // attributes
  };
  using Points = std::vector<std::pair<double, double>>;
  using Lines = std::vector<std::array<double, 4>>;  // from x, y to x, y

  // With a white ground.
  Picture(double width, double height)
      : svg_("<svg xmlns=\"http://www.w3.org/2000/svg\"" +
             attributes({{"width", width}, {"height", height}}) + " viewBox=\"0 0 " +
             number(width) + " " + number(height) +
             "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n") {}

  // One decimal, as coordinates need it, in any locale.
  [[nodiscard]] static std::string number(double value) {
    std::array<char, 32> text{};
    const auto [end, error] =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 1);
    return {text.data(), end};
  }

  void text(const Text& at, std::string_view content) {
    svg_ += "<text" + attributes({{"x", at.x}, {"y", at.y}}) + " text-anchor=\"" +
            std::string(at.anchor) + "\" " + std::string(at.extra) + ">";
    for (const char each : content) {
      svg_ += each == '&'   ? "&amp;"
              : each == '<' ? "&lt;"
              : each == '>' ? "&gt;"
                            : std::string(1, each);
    }
    svg_ += "</text>\n";
  }
  void line(double x1, double y1, double x2, double y2, const std::string& stroke) {
    shape("line", attributes({{"x1", x1}, {"y1", y1}, {"x2", x2}, {"y2", y2}}), stroke);
  }
  // Many of one look, as one shape.
  void lines(const Lines& all, const std::string& stroke) {
    std::string path;
    for (const auto& [x1, y1, x2, y2] : all) {
      path += "M" + number(x1) + "," + number(y1) + "L" + number(x2) + "," + number(y2);
    }
    shape("path", " d=\"" + path + "\"", stroke);
  }
  void dots(const Points& points, double radius, std::string_view colour) {
    Lines all;  // of no length, with round ends
    for (const auto& [x, y] : points) all.push_back({x, y, x, y});
    lines(all, "stroke=\"" + std::string(colour) + "\" stroke-width=\"" + number(2 * radius) +
                   "\" stroke-linecap=\"round\"");
  }
  void rectangle(double x, double y, double width, double height, const std::string& paint) {
    shape("rect", attributes({{"x", x}, {"y", y}, {"width", width}, {"height", height}}), paint);
  }
  void circle(double x, double y, double radius, const std::string& paint) {
    shape("circle", attributes({{"cx", x}, {"cy", y}, {"r", radius}}), paint);
  }
  // A line from each point to the next.
  void curve(const Points& points, const std::string& stroke) {
    std::string places;
    for (const auto& [x, y] : points) places += number(x) + "," + number(y) + " ";
    shape("polyline", " fill=\"none\"", stroke + " points=\"" + places + "\"");
  }
  // What follows has its origin there, up to end_group().
  void begin_group(double x, double y) {
    svg_ += "<g transform=\"translate(" + number(x) + "," + number(y) + ")\">\n";
  }
  void end_group() { svg_ += "</g>\n"; }

  [[nodiscard]] std::string svg() const { return svg_ + "</svg>\n"; }

 private:
  static std::string attributes(const std::vector<std::pair<std::string_view, double>>& all) {
    std::string text;
    for (const auto& [name, value] : all) {
      text.append(" ").append(name).append("=\"" + number(value) + "\"");
    }
    return text;
  }
  void shape(const std::string& name, const std::string& where, const std::string& paint) {
    svg_ += "<" + name + where + " " + paint + "/>\n";
  }

  std::string svg_;
};

}  // namespace ronde::base
