// SPDX-License-Identifier: Apache-2.0
// The verdict about tensors that are late, and its words: which ranks they wait for, whether names
// cross (two ranks wait for each other), and whether a name looks misspelt. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/config.h"

namespace ronde::runtime {

// How long reports of late tensors are gathered before the notice; a rank reports what will be late
// within this time together with what is.
[[nodiscard]] base::Nanoseconds gathering_time(const base::Config& config);

// Whose deadline has failed the job: the request's own, or that of the engine.
[[nodiscard]] inline std::string deadline_text(bool own) {
  return std::string(". This is the deadline of ") +
         (own ? "the request (deadline_ns)" : "RONDE_STALL_FAILURE_SECONDS");
}

struct StalledTensor {
  std::string name;
  base::Nanoseconds waited{};
  std::vector<std::int32_t> ready;    // ascending, like `missing`; not empty
  std::vector<std::int32_t> missing;  // empty: the last rank has stopped while it submitted
  std::string steps{};                // which rank has taken fewer steps of it
};

// Tensors are named by their index in the list that was judged.
struct StallVerdict {
  // Each holds the tensors that the same ranks have submitted, in the order of the list.
  std::vector<std::vector<std::size_t>> groups;
  struct Pair {
    std::size_t first = 0;
    std::size_t second = 0;
  };
  // Names that are nearly equal where no rank has submitted both: the first few such pairs.
  std::vector<Pair> alike;
  // A rank that has submitted `first` and not `second`, and one for which it is the other way
  // round; not a pair of groups of which `alike` has names.
  std::optional<Pair> crossed;
  // How many pairs of names were compared letter by letter for `alike`.
  std::size_t names_paired = 0;
};

// The most pairs that judge_stall() compares letter by letter, which takes about 20 ms.
inline constexpr std::size_t kMostNamesPaired = 16'384;

[[nodiscard]] StallVerdict judge_stall(std::span<const StalledTensor> late);

// True for names that differ by a letter or two (in long ones) that were left out, added, changed
// or swapped, in their case or in their punctuation. Names that differ in their numbers are meant
// to.
[[nodiscard]] bool nearly_equal(std::string_view one, std::string_view other);

// "'a' has waited 30 s", "'a' and 160 more have waited 30 s", "'a' and 1 more have waited up to 42
// s" where they were submitted at different times. `count`: of the tensors, with the first.
[[nodiscard]] std::string late_phrase(const std::string& first, std::size_t count,
                                      base::Nanoseconds longest, base::Nanoseconds shortest);

// One line for all of them. `place_of` says where ranks are: " (host node3, pid 42)".
using PlaceOf = std::function<std::string(const std::vector<std::int32_t>& ranks)>;
[[nodiscard]] std::string stall_notice(std::span<const StalledTensor> late,
                                       const StallVerdict& verdict, const PlaceOf& place_of);

}  // namespace ronde::runtime
