// SPDX-License-Identifier: Apache-2.0
// Counts that cannot silently overflow or be mixed up: elements and bytes are different types, and
// every product and every narrowing is checked.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/status.h"

namespace ronde::base {

// Narrows a number that is known to fit; aborts, with the place, when it does not.
template <typename To, typename From>
[[nodiscard]] constexpr To narrow(
    From value, const std::source_location& where = std::source_location::current()) {
  if (!std::in_range<To>(value)) [[unlikely]] {
    fail_check("number " + std::to_string(value) + " does not fit its new type", where);
  }
  return static_cast<To>(value);
}

// Narrows a number that came from outside; an error when it does not fit.
template <typename To, typename From>
[[nodiscard]] Result<To> try_narrow(
    From value, const char* what,
    const std::source_location& where = std::source_location::current()) {
  if (!std::in_range<To>(value)) {
    return Status::error(Code::kInvalidArgument,
                         std::string(what) + " " + std::to_string(value) + " is out of range [" +
                             std::to_string(std::numeric_limits<To>::min()) + ", " +
                             std::to_string(std::numeric_limits<To>::max()) + "]",
                         where);
  }
  return static_cast<To>(value);
}

// A number of things, told apart by Tag. Never negative. Thread safety: a value.
template <typename Tag>
class Count {
 public:
  constexpr Count() = default;
  constexpr explicit Count(std::int64_t value) : value_(value) {
    check(value >= 0, "a count is never negative");
  }
  static constexpr Count of_size(std::size_t value) { return Count(narrow<std::int64_t>(value)); }

  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  [[nodiscard]] constexpr std::size_t size() const { return static_cast<std::size_t>(value_); }

  friend constexpr auto operator<=>(Count, Count) = default;
  friend constexpr Count operator+(Count a, Count b) {
    std::int64_t sum = 0;
    check(!__builtin_add_overflow(a.value_, b.value_, &sum), "count overflow");
    return Count(sum);
  }
  friend constexpr Count operator-(Count a, Count b) { return Count(a.value_ - b.value_); }
  constexpr Count& operator+=(Count other) { return *this = *this + other; }

 private:
  std::int64_t value_ = 0;
};

using Elements = Count<struct ElementsTag>;
using Bytes = Count<struct BytesTag>;

// Returns a * b, or nothing when it does not fit 63 bits.
[[nodiscard]] inline std::optional<std::int64_t> checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace ronde::base
