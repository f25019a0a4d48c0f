// SPDX-License-Identifier: Apache-2.0
// Errors that are passed to every rank, so that one line is printed and all ranks end in order.
#pragma once

#include <functional>
#include <ronde/ronde.hpp>
#include <stdexcept>
#include <string>

namespace ronde::perf {

// Exit codes of the program.
inline constexpr int kWrong = 1;
inline constexpr int kUsage = 2;
inline constexpr int kWorse = 3;

// An error that every rank has got: rank 0 prints it, and all ranks end in order.
class EveryRanksError : public std::runtime_error {
 public:
  EveryRanksError(int code, const std::string& message)
      : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const { return code_; }

 private:
  int code_;
};

// Runs `work` on rank 0 alone, and sends its outcome to the others: every rank throws
// EveryRanksError for a code that is not 0 or an exception. Collective.
void on_rank_0(Engine& engine, const std::function<int()>& work);

// Runs work that may fail on some ranks alone, such as allocating memory: every rank throws
// EveryRanksError with the message of the first rank that failed. Collective; the work itself is
// not.
void on_every_rank(Engine& engine, const std::function<void()>& work);

}  // namespace ronde::perf
