// SPDX-License-Identifier: Apache-2.0
// Which step of a training a tensor belongs to. The engine pairs the n-th submission of a name on
// one rank with the n-th on every other, so a rank that leaves out a step would mix its later steps
// with older ones of the others. Numbers that must agree show it at once; where they are only
// counted, they tell why a tensor cannot complete once a rank has closed its engine.
//
// Each rank writes its number beside its arrival at a planned entry. Whoever takes a complete entry
// compares the numbers of its host, and leaders carry what they have found up the tree: in a steady
// step no message is added. Pure values.
#pragma once

#include <cstdint>
#include <string>

namespace ronde::runtime {

// One number, as the word that a rank leaves on the board. Thread safety: a value.
class StepNumber {
 public:
  constexpr StepNumber() = default;  // there is none

  static constexpr StepNumber of_word(std::uint64_t word) {
    StepNumber step;
    step.word_ = word;
    return step;
  }
  // From 0 to 2^62.
  static constexpr StepNumber counted(std::int64_t number) {
    return of_word((static_cast<std::uint64_t>(number) + 1) << 1U);
  }
  static constexpr StepNumber agreed(std::int64_t number) {
    return of_word(counted(number).word() | 1U);
  }

  [[nodiscard]] constexpr std::uint64_t word() const { return word_; }
  [[nodiscard]] constexpr bool exists() const { return word_ != 0; }
  [[nodiscard]] constexpr bool must_agree() const { return (word_ & 1U) != 0; }
  [[nodiscard]] constexpr std::int64_t number() const {
    return static_cast<std::int64_t>(word_ >> 1U) - 1;
  }

  friend constexpr bool operator==(StepNumber, StepNumber) = default;

 private:
  std::uint64_t word_ = 0;
};

// The lowest and the highest number of several ranks, each with a rank that has it, among numbers
// that must agree; one that need not counts as none. Thread safety: a value.
struct StepSpan {
  struct End {
    StepNumber step;
    std::int32_t rank = -1;  // -1: no rank is known

    friend bool operator==(const End&, const End&) = default;
  };
  End low;
  End high;

  void add(std::int32_t rank, StepNumber step);
  void add(const StepSpan& other);
  [[nodiscard]] bool agrees() const { return low.step == high.step; }

  friend bool operator==(const StepSpan&, const StepSpan&) = default;
};

// "'fc1/weight': the ranks are in different steps: rank 0 is in step 3, rank 1 is in step 4: rank 1
// has left one out. Have every rank take every step"
[[nodiscard]] std::string steps_differ(const std::string& name, const StepSpan& steps);

// "rank 1 has taken 9 steps, rank 0 is in its 10th", or, of numbers that must agree, "rank 1 was
// last in step 8, rank 0 is in step 9"; empty where `last`, what rank `behind` has submitted last,
// is not behind `waits`, what rank `waiting` waits for. A rank that submits no more, or something
// else, has left one out.
[[nodiscard]] std::string steps_behind(std::int32_t behind, StepNumber last, std::int32_t waiting,
                                       StepNumber waits);
inline constexpr const char* kOneLeftOut = ": one was left out";

}  // namespace ronde::runtime
