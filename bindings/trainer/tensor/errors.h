// SPDX-License-Identifier: Apache-2.0
// What the training core throws: one line that says what, where and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace ronde::trainer {

class TrainerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

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
  AgreedError(const std::string& message, int speaker) : TrainerError(message), speaker_(speaker) {}

  [[nodiscard]] int speaker() const noexcept { return speaker_; }

 private:
  int speaker_;
};

}  // namespace ronde::trainer
