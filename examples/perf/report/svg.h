// SPDX-License-Identifier: Apache-2.0
// The pieces of a picture: the SVG is written by hand, to need no library. Pure.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace ronde::perf::svg {

struct Style {
  std::string_view contender;
  std::string_view label;
  std::string_view colour;  // of a palette that colour-blind readers can tell apart
  std::string_view dash;
  double width;
};

inline constexpr std::array<Style, 6> kStyles{{
    {"memcpy", "memcpy by every rank", "#777777", "5 4", 1.6},
    {"line", "TCP alone", "#777777", "5 4", 1.6},
    {"mpi", "MPI as it comes", "#0072b2", "", 1.8},
    {"mpi-best", "MPI, best algorithm (segmented ring)", "#56b4e9", "", 1.8},
    {"ronde-flat", "Ronde, one flat tensor", "#e69f00", "", 1.8},
    {"ronde", "Ronde", "#d55e00", "", 3.0},  // last, so that it lies on top
}};

// One decimal, as coordinates need it.
[[nodiscard]] std::string number(double value);
// No more digits than needed: 0.5, 20, 1000.
[[nodiscard]] std::string plain(double value);
[[nodiscard]] std::string escaped(std::string_view text);

struct Text {
  double x;
  double y;
  std::string_view anchor;  // start, middle, end
  std::string_view extra;   // attributes
};

void write_text(std::string& svg, const Text& place, std::string_view text);
void write_line(std::string& svg, double x1, double y1, double x2, double y2,
                const std::string& stroke);
// The opening tag and a white ground.
[[nodiscard]] std::string begin(double width, double height);

}  // namespace ronde::perf::svg
