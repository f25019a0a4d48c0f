// SPDX-License-Identifier: Apache-2.0
// Whole trainings over the ranks of a job: which of them end with the same bits.
#include "bindings/trainer/fit/strategy/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ronde/ronde.hpp>
#include <utility>
#include <vector>

#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/parameter.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "test/unit/trainer/local_ranks.h"
#include "test/unit/trainer/optim/toy_job.h"

namespace ronde::trainer {
namespace {

using Kind = RuleOptions::Kind;
using Bits = std::vector<std::uint32_t>;

// Ragged parts, and batches that leave some ranks without samples.
const std::vector<std::size_t> kBatches{12, 7, 1, 11, 2, 5};

std::vector<RuleOptions> optimizers() {
  return {{.kind = Kind::kSgd},
          {.kind = Kind::kSgd, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
          {.kind = Kind::kAdam},
          {.kind = Kind::kAdamW}};
}

OptimizerOptions options_of(std::uint64_t accumulate, double clip_norm) {
  OptimizerOptions options;
  options.schedule = {
      .kind = ScheduleOptions::Kind::kCosine, .learning_rate = 0.02, .warmup = 2, .total = 20};
  options.accumulate = accumulate;
  options.clip_norm = clip_norm;
  return options;
}

// The bits of rank 0; all ranks must have them.
Bits bits_of(const Training& training) {
  const std::vector<Bits> all = train(training);
  for (const Bits& bits : all) EXPECT_EQ(bits, all[0]);
  return all[0];
}

TEST(Training, RanksGiveTheBitsOfOneRankThatAccumulates) {
  for (const RuleOptions& optimizer : optimizers()) {
    for (const double clip : {0.0, 0.5}) {
      for (const int parts : {2, 3, 4}) {
        const auto each = static_cast<std::uint64_t>(parts);
        const Bits one = bits_of({1, optimizer, options_of(each, clip), kBatches});
        EXPECT_EQ(bits_of({parts, optimizer, options_of(1, clip), kBatches}), one)
            << parts << " ranks, optimiser " << static_cast<int>(optimizer.kind) << ", clip "
            << clip;
      }
    }
  }
}

TEST(Training, RankThatAccumulatesDiffersFromOneThatDoesNot) {
  // Or else the test above would compare sums that are exact whatever their order.
  const RuleOptions sgd{.momentum = 0.9};
  EXPECT_NE(bits_of({1, sgd, options_of(3, 0.0), kBatches}),
            bits_of({1, sgd, options_of(1, 0.0), kBatches}));
}

float value_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

void expect_close(const Bits& bits, const Bits& expected, double relative) {
  ASSERT_EQ(bits.size(), expected.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const double allowed = relative * std::abs(value_of(expected[i])) + relative;
    ASSERT_NEAR(value_of(bits[i]), value_of(expected[i]), allowed) << "value " << i;
  }
}

TEST(Training, TwoRanksThatAccumulateTwoAreCloseToOneThatAccumulatesFour) {
  const RuleOptions sgd{.momentum = 0.9};
  expect_close(bits_of({2, sgd, options_of(2, 0.0), kBatches}),
               bits_of({1, sgd, options_of(4, 0.0), kBatches}), 1e-5);
}

// The model's gradients, 464 bytes, take three ways through the averager: see bucket_bytes.
TEST(Training, SameBitsHoweverGradientsTravel) {
  for (const RuleOptions& optimizer : optimizers()) {
    for (const std::uint64_t accumulate : {1U, 2U}) {
      const OptimizerOptions plain = options_of(accumulate, 0.5);
      const Bits expected = bits_of({3, optimizer, plain, kBatches});
      OptimizerOptions options = plain;
      options.gradients = Gradients::kBoard;
      EXPECT_EQ(bits_of({3, optimizer, options, kBatches}), expected) << "board";
      options.bucket_bytes = 0;
      EXPECT_EQ(bits_of({3, optimizer, options, kBatches}), expected) << "board, at once";
      options = plain;
      options.bucket_bytes = 0;
      EXPECT_EQ(bits_of({3, optimizer, options, kBatches}), expected) << "at once";
      options.shuffle_seed = 5;
      EXPECT_EQ(bits_of({3, optimizer, options, kBatches}), expected) << "shuffled";
      options = plain;
      options.overlap = false;
      EXPECT_EQ(bits_of({3, optimizer, options, kBatches}), expected) << "without overlap";
    }
  }
}

TEST(Training, SixteenBitsOnTheWireAreCloseAndTheSameOnAllRanks) {
  const RuleOptions sgd{.momentum = 0.9};
  const Bits expected = bits_of({3, sgd, options_of(1, 0.0), kBatches});
  for (const auto& [wire, relative] :
       {std::pair{Compression::kF16, 1e-3}, std::pair{Compression::kBf16, 1e-2}}) {
    OptimizerOptions options = options_of(1, 0.0);
    options.wire = wire;
    const Bits bits = bits_of({3, sgd, options, kBatches});
    EXPECT_NE(bits, expected);
    expect_close(bits, expected, relative);
    options.gradients = Gradients::kBoard;
    EXPECT_EQ(bits_of({3, sgd, options, kBatches}), bits) << "board";
  }
}

struct Large {
  Parameter parameter;
  Tensor operator()(const Tensor& x) { return x * x.tape().use(parameter); }
  std::vector<Parameter*> parameters() { return {&parameter}; }
};

// The sums of gradients that are drawn for each part, `ranks` times `accumulate` of them.
Bits sums_of(int ranks, const OptimizerOptions& options, std::size_t size) {
  Bits bits;
  run_ranks(ranks, [&](const LocalJob& job, int rank) {
    Large large{{"large", {size}}};
    Parameter& parameter = large.parameter;
    JobRank strategy(job, rank);
    Model model(large);
    Optimizer optimizer(model, options);
    Tape& tape = strategy.here().tape();
    const std::uint64_t first = static_cast<std::uint64_t>(rank) * options.accumulate;
    for (std::uint64_t part = first; part < first + options.accumulate; ++part) {
      Generator generator(3, part);
      std::vector<float> gradient(size);
      for (float& value : gradient) value = generator.uniform(-1.0F, 1.0F);
      tape.begin();
      Loss loss;
      loss.value = sum(model(tape.constant({size}, gradient)));
      optimizer.backward(tape, loss);
    }
    optimizer.step();
    if (rank == 0) append_bits(bits, parameter.gradient());
  });
  return bits;
}

TEST(Training, GradientsOfAllSizesAreSummedInTheOrderOfTheRanks) {
  for (const std::size_t size : {1U, 1000U, 30000U, 1000003U}) {
    for (const int parts : {3, 4}) {
      const auto each = static_cast<std::uint64_t>(parts);
      const Bits one = sums_of(1, {.accumulate = each}, size);
      EXPECT_TRUE(sums_of(parts, {}, size) == one) << size << " elements, " << parts << " ranks";
      EXPECT_TRUE(sums_of(parts, {.gradients = Gradients::kBoard}, size) == one)
          << size << " elements on the board, " << parts << " ranks";
    }
  }
}

}  // namespace
}  // namespace ronde::trainer
