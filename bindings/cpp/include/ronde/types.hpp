// SPDX-License-Identifier: Apache-2.0
// Errors and operations of the C++ facade. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ronde {
namespace detail {

// As base/text.h, which is not installed (a test compares the two): a line end in a name must not
// begin a line that looks like Ronde's own, nor an escape sequence reach a terminal.
inline std::string printable(std::string_view text) {
  std::string result;
  std::size_t left = 0;  // bytes of a control character; U+0080 to U+009F have two
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) left = 1;
    if (byte == 0xc2 && i + 1 < text.size() && (text[i + 1] & 0xe0) == 0x80) left = 2;
    const std::size_t letter = std::string_view("\n\r\t").find(text[i]);
    if (left == 0) {
      result += text[i];
    } else if (letter != std::string_view::npos) {
      (result += '\\') += "nrt"[letter];
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      result += {'\\', 'x', kDigits[byte / 16U], kDigits[byte % 16U]};
    }
    left -= left > 0 ? 1 : 0;
  }
  return result;
}

}  // namespace detail

// What every failing call throws. what() is one line that says what, where and what to do.
//
//   try {
//     work.wait();
//   } catch (const ronde::Error& error) {
//     if (error.status() != RONDE_MISMATCH) throw;   // this tensor alone: the engine lives on
//   }
//
// Thread safety: a value; any number of threads may read it.
class Error : public std::runtime_error {
 public:
  // Facade and trainers make them; `rank` is -1 where no rank is at fault.
  Error(ronde_status status, const std::string& message, std::string place, int rank)
      : std::runtime_error(detail::printable(message)),
        status_(status),
        place_(std::move(place)),
        rank_(rank) {}

  // The code that the C ABI returned, never RONDE_OK.
  [[nodiscard]] ronde_status status() const noexcept { return status_; }
  // "file:line", where the error was first noticed; may be empty.
  [[nodiscard]] const std::string& place() const noexcept { return place_; }
  // The rank at fault, or -1 where none is known.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  ronde_status status_;
  std::string place_;
  int rank_;
};

// How contributions become the result; ronde_op in ronde.h defines the results for integers, NaN,
// signed zeros and bools.
enum class Op : std::int32_t {
  kAverage = RONDE_AVERAGE,
  kSum = RONDE_SUM,
  kMin = RONDE_MIN,
  kMax = RONDE_MAX,
  kProduct = RONDE_PRODUCT,
  kBitAnd = RONDE_BAND,
  kBitOr = RONDE_BOR,
  kBitXor = RONDE_BXOR
};
inline constexpr Op average = Op::kAverage;
inline constexpr Op sum = Op::kSum;
inline constexpr Op min = Op::kMin;
inline constexpr Op max = Op::kMax;
inline constexpr Op product = Op::kProduct;
inline constexpr Op band = Op::kBitAnd;  // bitwise: integers and bool
inline constexpr Op bor = Op::kBitOr;
inline constexpr Op bxor = Op::kBitXor;

// What travels between the ranks in place of float: half the bytes, and fewer digits.
enum class Compression : std::int32_t {
  kNone = RONDE_COMPRESSION_NONE,
  kBf16 = RONDE_COMPRESSION_BF16,
  kF16 = RONDE_COMPRESSION_F16
};

namespace detail {

// Turns an error of the C ABI into an exception.
class ErrorSlot {
 public:
  ErrorSlot() = default;
  ErrorSlot(const ErrorSlot&) = delete;
  ErrorSlot& operator=(const ErrorSlot&) = delete;
  ~ErrorSlot() { ronde_error_release(error_); }

  ronde_error** operator&() { return &error_; }  // NOLINT(google-runtime-operator)

  void throw_if(ronde_status status) const {
    if (status == RONDE_OK) return;
    if (error_ == nullptr) throw Error(status, ronde_status_name(status), "", -1);
    throw Error(status, ronde_error_message(error_), ronde_error_place(error_),
                ronde_error_rank(error_));
  }

 private:
  ronde_error* error_ = nullptr;
};

}  // namespace detail
}  // namespace ronde
