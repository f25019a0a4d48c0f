// SPDX-License-Identifier: Apache-2.0
// What is hardly drawn: what is no number, infinities, overflow (also in 16 bits alone), signed
// zeros and the smallest numbers, on some ranks or on all.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace ronde::conformance {

// The special number of this kind (0 to 7) on the first, the last or another rank; nothing: none.
inline std::optional<double> special_number(std::int64_t kind, bool first, bool last) {
  using Limits = std::numeric_limits<double>;
  switch (kind) {
    case 0:
      return first ? std::optional(Limits::quiet_NaN()) : std::nullopt;
    case 1:
      return last ? std::optional(Limits::infinity()) : std::nullopt;
    case 2:
      return first ? Limits::infinity() : -Limits::infinity();
    case 3:
      return 65504.0;  // the largest of f16
    case 4:
      return -0.0;
    case 5:
      return last ? 0.0 : -0.0;
    case 6:
      return 6e-8;  // the smallest of f16
    case 7:
      return 3.0e38;  // bf16 and f32 overflow with the second one
    default:
      return std::nullopt;
  }
}

}  // namespace ronde::conformance
