// SPDX-License-Identifier: Apache-2.0
// What the training core throws: one line that says what, where and what to do.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace ronde::trainer {

// How the process of a training ends (sysexits.h): what a launcher or a batch system acts on.
inline constexpr int kExitFailure = 1;
inline constexpr int kExitStopped = 75;        // EX_TEMPFAIL: stopped and saved; start it again
inline constexpr int kExitConfiguration = 78;  // EX_CONFIG: another start would fail alike

class TrainerError : public std::runtime_error {
 public:
  explicit TrainerError(const std::string& message, int exit_code = kExitFailure)
      : std::runtime_error(message), exit_code_(exit_code) {}

  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

// With what a program ends that has caught this.
[[nodiscard]] inline int exit_code_of(const std::exception& error) noexcept {
  const auto* const ours = dynamic_cast<const TrainerError*>(&error);
  return ours == nullptr ? kExitFailure : ours->exit_code();
}

// A data file that is missing or is not what it should be.
class DataError : public TrainerError {
 public:
  using TrainerError::TrainerError;
};

// An error that every rank of the job throws at the same point with the same text, so that all of
// them can end in good order: the program decides who prints it.
class AgreedError : public TrainerError {
 public:
  static constexpr int kEveryRank = -1;

  // `speaker` is the rank that should print the error.
  AgreedError(const std::string& message, int speaker, int exit_code = kExitFailure)
      : TrainerError(message, exit_code), speaker_(speaker) {}

  [[nodiscard]] int speaker() const noexcept { return speaker_; }

 private:
  int speaker_;
};

}  // namespace ronde::trainer
