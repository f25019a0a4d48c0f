// SPDX-License-Identifier: Apache-2.0
// What the ranks of a job do that have other numbers of steps, as a seed draws it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "base/job_shape.h"

namespace ronde::runtime {

enum class JoinKind : std::uint8_t {
  kSum,
  kAverage,
  kPrescaledMax,
  kMin,
  kProduct,
  kWeighted,
  kGroup,
  kCompressed,
  kBroadcast,
  kAllgather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};
inline constexpr int kKinds = 13;

// What the ranks do: counts[x][r] is how often rank r submits tensor x in each round before it
// joins; a round ends with the join of all.
struct Program {
  int ranks = 1;
  int rounds = 1;
  std::vector<JoinKind> kinds;
  std::vector<std::int64_t> lengths;
  std::vector<std::vector<std::vector<int>>> counts;  // [round][tensor][rank]
  std::vector<bool> whole_steps;                      // by round: no rank joins inside a step

  // The ranks of the k-th time, and one that takes part to the end.
  [[nodiscard]] std::vector<int> present(int round, std::size_t tensor, int time) const {
    std::vector<int> ranks_of;
    for (int r = 0; r < ranks; ++r) {
      if (count(round, tensor, r) > time) ranks_of.push_back(r);
    }
    return ranks_of;
  }
  [[nodiscard]] int count(int round, std::size_t tensor, int rank) const {
    return counts[static_cast<std::size_t>(round)][tensor][static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int last(int round, std::size_t tensor) const {
    const auto& of = counts[static_cast<std::size_t>(round)][tensor];
    return static_cast<int>(std::max_element(of.begin(), of.end()) - of.begin());
  }
};

// Exact in 16 bits, as sums and products are.
inline float value_of(int rank, std::size_t tensor, int time, std::int64_t i) {
  return static_cast<float>(
      1 + (rank * 3 + static_cast<int>(tensor) + time + static_cast<int>(i % 5)) % 3);
}
inline double weight_of_join(int rank, int time) { return (rank + 2 * time) % 3 + 1; }

// Hosts of every layout.
inline base::JobShape draw_shape(std::mt19937_64& random, int ranks) {
  const auto layout = random() % 5;
  std::vector<std::int32_t> leaders;
  for (int rank = 0; rank < ranks; ++rank) {
    leaders.push_back(layout == 0   ? rank / 2 * 2
                      : layout == 1 ? rank
                      : layout == 2 ? std::min(rank, rank % 2)
                                    : 0);
  }
  return base::JobShape::of_leaders(leaders).value();
}

inline Program draw_program(std::mt19937_64& random, int ranks) {
  const auto below = [&](std::uint64_t limit) { return static_cast<int>(random() % limit); };
  Program program;
  program.ranks = ranks;
  program.rounds = 1 + below(2);
  const int tensors = 1 + below(6);
  for (int x = 0; x < tensors; ++x) {
    program.kinds.push_back(static_cast<JoinKind>(below(kKinds)));
    program.lengths.push_back(below(3) == 0   ? 1 + below(3)
                              : below(4) == 0 ? 9000 + below(100)
                                              : 50 + below(200));
  }
  for (int round = 0; round < program.rounds; ++round) {
    std::vector<int> steps;
    std::vector<bool> partly;
    for (int rank = 0; rank < program.ranks; ++rank) {
      steps.push_back(below(6));
      partly.push_back(below(3) == 0);
    }
    program.whole_steps.push_back(std::ranges::none_of(partly, [](bool one) { return one; }));
    auto& counts = program.counts.emplace_back();
    for (int x = 0; x < tensors; ++x) {
      auto& of = counts.emplace_back();
      for (int rank = 0; rank < program.ranks; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        // Some join in the middle of a step.
        of.push_back(steps[r] + (partly[r] && below(2) == 0 ? 1 : 0));
      }
    }
  }
  return program;
}

}  // namespace ronde::runtime
