// SPDX-License-Identifier: Apache-2.0
// The one error channel of the library: a Status says what went wrong, where in the source it was
// noticed, and what caused it. Exceptions exist only in the C++ facade.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace ronde::base {

// The values are part of the C ABI (ronde_status in ronde.h) and never change.
enum class Code : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // the caller passed something that can never work
  kMismatch = 2,         // the ranks disagree about a tensor; the engine lives on
  kDuplicateName = 3,    // the name is already in flight on this rank
  kClosed = 4,           // this engine, or the engine of another rank, has been closed
  kPeerFailed = 5,       // a rank died or broke the job
  kDeadline = 6,         // a wait reached its deadline
  kUnsupported = 7,      // valid, but this build or this job cannot do it
  kOutOfMemory = 8,
  kSystem = 9,      // a call of the operating system failed
  kTransport = 10,  // MPI, another transport or a device failed
  kInternal = 11,   // a bug in Ronde
};

// "invalid argument", "mismatch", ...
const char* code_name(Code code);

// Thread safety: a value; copies share an immutable state.
class [[nodiscard]] Status {
 public:
  Status() = default;  // success

  static Status error(Code code, const std::string& message,
                      std::source_location where = std::source_location::current());
  // An error that `cause` explains.
  static Status error(Code code, const std::string& message, Status cause,
                      std::source_location where = std::source_location::current());
  // An error that another rank (or an earlier run of this code) noticed, with its place as text.
  static Status remote(Code code, const std::string& message, const std::string& place,
                       std::int32_t rank);

  // The errno of a failed call, in words: "<action>: No such file or directory".
  static Status system(const std::string& action, int error_number,
                       std::source_location where = std::source_location::current());

  [[nodiscard]] bool ok() const { return state_ == nullptr; }
  [[nodiscard]] Code code() const;
  // One line for people; includes the causes, not the place.
  [[nodiscard]] std::string message() const;
  // "file:line" of the first cause: where the trouble began. Empty for success.
  [[nodiscard]] std::string place() const;
  // The rank at fault, where one is known.
  [[nodiscard]] std::optional<std::int32_t> rank() const;
  [[nodiscard]] Status with_rank(std::int32_t rank) const;
  // message, code and place in one line.
  [[nodiscard]] std::string to_string() const;

  // Drops the error, visibly: nothing can be done about it here (in a destructor, while failing).
  void ignore() const {}

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : content_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    check(!std::get<Status>(content_).ok(), "a Result needs a value or an error");
  }

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(content_); }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<Status>(content_); }

  [[nodiscard]] const T& value() const& {
    check_value();
    return std::get<T>(content_);
  }
  [[nodiscard]] T& value() & {
    check_value();
    return std::get<T>(content_);
  }
  [[nodiscard]] T&& value() && {
    check_value();
    return std::get<T>(std::move(content_));
  }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  void check_value() const { check(ok(), "value() of a failed Result"); }
  std::variant<T, Status> content_;
};

}  // namespace ronde::base

// The control-flow macros of the house: chains of ifs would hide the work.

// Returns from the enclosing function when `expression` is an error.
#define RONDE_RETURN_IF_ERROR(expression)                         \
  do {                                                            \
    if (auto ronde_status_ = (expression); !ronde_status_.ok()) { \
      return ronde_status_;                                       \
    }                                                             \
  } while (false)

// RONDE_ASSIGN_OR_RETURN(const auto board, Board::attach(memory)): the value of a Result, or the
// enclosing function returns its error.
#define RONDE_ASSIGN_OR_RETURN(target, ...) \
  RONDE_ASSIGN_OR_RETURN_AT(RONDE_JOINED(ronde_result_, __LINE__), target, __VA_ARGS__)
#define RONDE_ASSIGN_OR_RETURN_AT(result, target, ...) \
  auto result = __VA_ARGS__;                           \
  if (!result.ok()) return result.status();            \
  target = std::move(*result)
#define RONDE_JOINED(one, other) RONDE_JOINED_WORDS(one, other)
#define RONDE_JOINED_WORDS(one, other) one##other
