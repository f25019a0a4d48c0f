// SPDX-License-Identifier: Apache-2.0
// The arithmetic of windows and pieces, by which a vector is cut inside a host. Pure.
//
//   vector of L lines, W windows        window w has L/W lines, the first L%W one more
//   window of n lines, p ranks          the piece of owner j has n/p, the first n%p one more
//
// A line is 64 bytes of what travels. Pieces differ by at most one line, so that all ranks have
// equal work in every window. No element is ever split.
#pragma once

#include <cstdint>

namespace ronde::collectives {

// Elements [begin, end) of the vector.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] constexpr std::int64_t length() const { return end - begin; }
  friend constexpr bool operator==(const ElementRange&, const ElementRange&) = default;
};

// Returns where part `part` of `value` things begins when `whole` parts share them and the first
// ones take the remainder; part `whole` is the end.
[[nodiscard]] std::int64_t share(std::int64_t value, std::int64_t part, std::int64_t whole);

// Thread safety: immutable.
class WindowPlan {
 public:
  // Cuts a vector of `elements` elements that take `element_bytes` each in a slot, over `ranks`
  // owners, in pieces of at most `piece_bytes`. The size of an element divides 64.
  WindowPlan(std::int64_t elements, std::int64_t element_bytes, std::int32_t ranks,
             std::int64_t piece_bytes);

  [[nodiscard]] std::int64_t windows() const { return windows_; }
  // The elements of an owner in a window; may be empty.
  [[nodiscard]] ElementRange piece(std::int64_t window, std::int32_t owner) const;
  [[nodiscard]] ElementRange window(std::int64_t window) const;
  // The most bytes that a piece has: a multiple of 64.
  [[nodiscard]] std::int64_t piece_bytes() const { return piece_lines_ * kLine; }

 private:
  static constexpr std::int64_t kLine = 64;

  [[nodiscard]] std::int64_t line_of_window(std::int64_t window) const;
  [[nodiscard]] std::int64_t element_of_line(std::int64_t line) const;

  std::int64_t elements_;
  std::int64_t per_line_;  // elements
  std::int64_t ranks_;
  std::int64_t lines_;
  std::int64_t piece_lines_;
  std::int64_t windows_;
};

}  // namespace ronde::collectives
