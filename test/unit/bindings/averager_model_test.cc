// SPDX-License-Identifier: Apache-2.0
// GradientAverager: whatever two ranks do in a step, their next averages are of one step again.
// Every pair of ways to take a step, one after the other in shuffled orders, against a model of
// what each gradient comes to. A drift shows in the next step; where ranks hang the test runs into
// its time limit. Through libronde.so, in a job of engines in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/unit/bindings/local_ranks.h"

namespace {

using ronde::testing::thrown_by;

// How a rank takes a step.
struct Way {
  // In this order: 'a', 'b': ready() of that gradient; 'A': ready() of a, whose submission fails on
  // this rank; 's': skip().
  std::string calls;
  bool goes_away = false;  // ends it by the destructor, not by wait(), and has a new averager then
  bool remade = false;     // has a new averager before it
};

enum class Part : std::uint8_t { kGiven, kZeros, kNone };

Part part_of(const Way& way, char gradient) {
  if (way.calls.find(gradient) != std::string::npos) return Part::kGiven;
  if (gradient == 'a' && way.calls.find('A') != std::string::npos) return Part::kNone;
  const bool skips = way.calls.find('s') != std::string::npos;
  return skips || !way.goes_away ? Part::kZeros : Part::kNone;
}

using Pair = std::array<Way, 2>;  // of ranks 0 and 1

// What a step's gradient is on a rank: a power of two that tells both.
float value_of(std::size_t step, std::size_t rank) {
  constexpr std::size_t kApart = 11;
  return static_cast<float>(1U << (2 * (step % kApart) + rank));
}

// Nothing: the ranks disagree, or none gives it.
std::optional<float> average_of(const Pair& pair, std::size_t step, char gradient) {
  float sum = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Part part = part_of(pair[rank], gradient);
    if (part == Part::kNone) return std::nullopt;
    if (part == Part::kGiven) sum += value_of(step, rank);
  }
  return sum;
}

bool disagree(const Pair& pair) {
  return std::ranges::any_of(std::string("ab"), [&](char gradient) {
    return (part_of(pair[0], gradient) == Part::kNone) !=
           (part_of(pair[1], gradient) == Part::kNone);
  });
}

class Rank {
 public:
  Rank(ronde::Engine& engine, std::size_t bucket_bytes)
      : engine_(engine), bucket_bytes_(bucket_bytes) {
    remake();
  }

  void take(std::size_t step, const Pair& pair) {
    const std::size_t rank = engine_.rank() == 0 ? 0 : 1;
    const Way& way = pair[rank];
    if (way.remade) remake();
    for (std::size_t g = 0; g < 2; ++g) {
      const bool given = part_of(way, "ab"[g]) == Part::kGiven;
      gradients_[g].assign(3, given ? value_of(step, rank) : 0.0F);
    }
    for (const char call : way.calls) make(call);
    // The averager's own zeros take part where it does not know the gradient's place any more.
    const bool elsewhere = moved_ && part_of(way, 'a') == Part::kZeros;
    if (way.goes_away) {
      remake();
    } else {
      const std::string error = thrown_by([this] { averager_->wait(); });
      EXPECT_EQ(!error.empty(), disagree(pair)) << error;
      EXPECT_EQ(error.find("the end of a step that it gave up") != std::string::npos,
                disagree(pair))
          << error;
    }
    for (std::size_t g = 0; g < 2; ++g) {
      const std::optional<float> average = average_of(pair, step, "ab"[g]);
      if (!average) continue;  // what is there is not specified
      EXPECT_THAT(gradients_[g], ::testing::Each(g == 0 && elsewhere ? 0.0F : *average)) << "ab"[g];
    }
  }

 private:
  void remake() {
    averager_.reset();
    averager_.emplace(engine_, ronde::sum, ronde::AllreduceOptions{}, bucket_bytes_);
    for (std::size_t g = 0; g < 2; ++g) {
      ids_[g] = averager_->add(std::string(1, "ab"[g]), std::span(gradients_[g]));
    }
    moved_ = false;
  }
  void make(char call) {
    if (call == 'a' || call == 'b') averager_->ready(ids_[call == 'a' ? 0 : 1]);
    if (call == 's') averager_->skip();
    if (call == 'a') moved_ = false;
    if (call != 'A') return;
    const ronde::DeviceSpan<float> nowhere(std::span<float>{gradients_[0]}, 7);
    EXPECT_THROW(averager_->ready(ids_[0], nowhere), ronde::Error);
    moved_ = true;
  }

  ronde::Engine& engine_;
  const std::size_t bucket_bytes_;
  std::array<std::vector<float>, 2> gradients_{std::vector<float>(3), std::vector<float>(3)};
  std::array<ronde::GradientAverager::Id, 2> ids_{};
  bool moved_ = false;  // the last ready() of a was given another place
  std::optional<ronde::GradientAverager> averager_;
};

std::vector<Pair> every_pair() {
  std::vector<Way> ways{{"", false, true}, {"ab", false, true}};
  for (const char* calls : {"", "a", "b", "ab", "ba", "s", "as", "bs", "A", "Ab", "bA", "As"}) {
    ways.push_back({calls});
    if (*calls != '\0') ways.push_back({calls, true});  // nothing is no step
  }
  std::vector<Pair> pairs;
  for (const Way& first : ways) {
    for (const Way& second : ways) pairs.push_back({first, second});
  }
  return pairs;
}

class GradientAveragerModel : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GradientAveragerModel, NoAverageMixesStepsWhateverTwoRanksDo) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    std::vector<Pair> pairs = every_pair();
    std::shuffle(pairs.begin(), pairs.end(), std::mt19937(seed));
    ronde::testing::on_ranks(2, [&](ronde::Engine& engine) {
      Rank rank(engine, GetParam());
      for (std::size_t step = 0; step < pairs.size(); ++step) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step) + ", rank " +
                     std::to_string(engine.rank()) + ": '" + pairs[step][0].calls + "' and '" +
                     pairs[step][1].calls + "'");
        rank.take(step, pairs[step]);
        if (::testing::Test::HasFailure()) break;  // what comes next is no news
      }
      const std::string unheard = thrown_by([&] { engine.close(); });
      EXPECT_NE(unheard, "") << "some destructors have met errors";
    });
    if (::testing::Test::HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Buckets, GradientAveragerModel,
                         ::testing::Values(ronde::GradientAverager::kBucketBytes, std::size_t{0}));

}  // namespace
